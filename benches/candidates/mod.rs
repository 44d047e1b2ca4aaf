//! The one table of what is measured: ours, and what others offer for the same job, on the same
//! `ToolCall` above the same tool. Times, instructions, allocations and sizes are all taken of
//! this.
//!
//! Peers are set up as their own documentation does it, for as much of our job as they can do;
//! where that is less, the name says so.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each program that includes this uses a part of it"
)]

mod http_tool;
mod layers;
mod listening;
mod many;
mod peers;
mod real;
mod refusals;
pub mod stacks;
pub mod tasks;
mod validate;

use std::panic;

use tower::{Service, ServiceBuilder};
use tower_layer::Layer;
use tower_toolcall::ToolCall;

use crate::kit::{
    drive::{Subject, shared},
    feed::{Arguments, Feed, Length, Names},
    rounds::{Expects, Member},
    tool::{Deep, Does, PANIC, Tool},
};

/// What is compared with each other, under each of the settings.
pub struct Group {
    pub name: &'static str,
    pub settings: Vec<Setting>,
    pub candidates: Vec<Candidate>,
}

impl Group {
    /// Its own, and those of the candidates.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let candidates = self.candidates.iter().map(|c| c.name);
        candidates.chain([self.name])
    }

    /// What threads do to each other, which only time tells.
    pub fn is_about_threads(&self) -> bool {
        self.settings.iter().any(|setting| setting.lanes > 1)
    }
}

/// How calls are sent.
#[derive(Clone, Copy)]
pub struct Setting {
    pub name: &'static str,
    pub does: Does,
    pub names: Names,
    pub length: Length,
    pub arguments: Arguments,
    /// Whether each call is a new one; else it is a clone.
    pub makes_new: bool,
    /// Threads that send calls.
    pub lanes: usize,
}

pub const AT_ONCE: Setting = Setting {
    name: "",
    does: Does::Answer,
    names: Names::One,
    length: Length::Short,
    arguments: Arguments::None,
    makes_new: false,
    lanes: 1,
};

pub const WAITS: Setting = Setting {
    name: "waits once",
    does: Does::Wait,
    ..AT_ONCE
};

pub const NEW_AT_ONCE: Setting = Setting {
    name: "new calls",
    makes_new: true,
    ..AT_ONCE
};

/// As it is in use.
pub const NEW: Setting = Setting {
    name: "new calls, waits once",
    makes_new: true,
    ..WAITS
};

pub const FIVE: Setting = Setting {
    name: "5 arguments",
    arguments: Arguments::Five,
    ..AT_ONCE
};

pub const LARGE: Setting = Setting {
    name: "64 KiB of arguments",
    arguments: Arguments::Large,
    ..AT_ONCE
};

impl Setting {
    pub fn feed(&self, lane: usize) -> Feed {
        Feed::new(
            self.names,
            self.length,
            self.arguments,
            self.makes_new,
            lane,
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Nobody: what the others' costs are measured from.
    Bare,
    Ours,
    Peer,
}

pub struct Candidate {
    pub name: &'static str,
    pub by: By,
    /// The bare one from which its cost is measured.
    pub above: &'static str,
    /// What the tool does, if not what the setting says.
    does: Option<Does>,
    expects: Expects,
    make: Box<dyn Fn(Does) -> Box<dyn Subject>>,
}

impl Candidate {
    /// As its name is everywhere but in the table of its group.
    pub fn full_name(&self, setting: &Setting) -> String {
        let peer = if self.by == By::Peer { "peer: " } else { "" };
        let by_setting = if setting.name.is_empty() { "" } else { "; " };
        format!("{peer}{}{by_setting}{}", self.name, setting.name)
    }

    pub fn member(&self, setting: &Setting) -> Member {
        Member {
            subject: (self.make)(self.does.unwrap_or(setting.does)),
            expects: self.expects,
        }
    }

    fn above(mut self, bare: &'static str) -> Self {
        self.above = bare;
        self
    }

    /// Calls end with the tool's error.
    fn fails(self, does: Does) -> Self {
        self.fails_after(1, does)
    }

    /// The same after so many attempts.
    fn fails_after(mut self, attempts: u64, does: Does) -> Self {
        self.does = Some(does);
        self.expects = Expects::ItsErrors(attempts);
        self
    }

    /// Calls end with an error that is not the tool's.
    fn errs(mut self) -> Self {
        self.expects = Expects::Errors;
        self
    }

    /// Calls are refused, without the tool, after it has done this for a while.
    fn refuses(mut self, does: Does) -> Self {
        self.does = Some(does);
        self.expects = Expects::Refusals;
        self
    }
}

fn candidate<const N: usize>(
    name: &'static str,
    by: By,
    make: fn(Tool<N>) -> Box<dyn Subject>,
) -> Candidate {
    Candidate {
        name,
        by,
        above: "bare",
        does: None,
        expects: Expects::Answers,
        make: Box::new(move |does| make(Tool(does))),
    }
}

fn ours(name: &'static str, make: fn(Tool) -> Box<dyn Subject>) -> Candidate {
    candidate(name, By::Ours, make)
}

fn peer(name: &'static str, make: fn(Tool) -> Box<dyn Subject>) -> Candidate {
    candidate(name, By::Peer, make)
}

fn bare() -> Candidate {
    candidate::<0>("bare", By::Bare, |tool| shared(tool))
}

/// A layer above the tool.
fn layered<L, const N: usize>(layer: L, tool: Tool<N>) -> Box<dyn Subject>
where
    L: Layer<Tool<N>, Service: Service<ToolCall, Response = u64> + Clone + Send + 'static>,
{
    shared(layer.layer(tool))
}

/// Several layers, as a `ServiceBuilder`, above the tool.
fn stacked<L, const N: usize>(layers: ServiceBuilder<L>, tool: Tool<N>) -> Box<dyn Subject>
where
    L: Layer<Deep<N>, Service: Service<ToolCall, Response = u64> + Clone + Send + 'static>,
{
    shared(layers.service(Deep(tool)))
}

/// All groups. The last one slows down all clocks of the process.
pub fn groups() -> Vec<Group> {
    let mut groups = layers::groups();
    groups.extend(many::groups());
    groups.extend(stacks::groups());
    groups.extend(real::groups());
    groups.extend(validate::groups());
    groups.extend(http_tool::groups());
    groups.extend(refusals::groups());
    // After a subscriber no event is as cheap as before the first one.
    let last = groups.pop();
    groups.extend(listening::groups());
    groups.extend(last);
    groups
}

/// Keeps quiet about the panics that are measured.
pub fn quiet() {
    let loud = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&PANIC) {
            loud(info);
        }
    }));
}
