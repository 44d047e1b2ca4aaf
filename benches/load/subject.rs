//! A stack with its type erased outside of what is measured.

use std::time::Duration;

use tokio::runtime::Runtime;

use crate::{
    arrivals::{self, Slice, Taken},
    candidates::stacks::Stack,
};

pub(crate) struct Subject {
    pub(crate) name: &'static str,
    stack: Box<dyn Driven>,
}

pub(crate) fn subject(name: &'static str, stack: impl Stack) -> Subject {
    Subject {
        name,
        stack: Box::new(stack),
    }
}

impl Subject {
    pub(crate) fn arrive(&self, runtime: &Runtime, slice: Slice) -> Taken {
        self.stack.arrive(runtime, slice)
    }

    pub(crate) fn at_most(&self, runtime: &Runtime, time: Duration) -> f64 {
        self.stack.at_most(runtime, time)
    }
}

trait Driven {
    fn arrive(&self, runtime: &Runtime, slice: Slice) -> Taken;
    fn at_most(&self, runtime: &Runtime, time: Duration) -> f64;
}

impl<S: Stack> Driven for S {
    fn arrive(&self, runtime: &Runtime, slice: Slice) -> Taken {
        arrivals::arrive(runtime, self, slice)
    }

    fn at_most(&self, runtime: &Runtime, time: Duration) -> f64 {
        arrivals::at_most(runtime, self, time)
    }
}
