use std::sync::Arc;

use super::annotations::Annotations;
use crate::{
    call::{CallExt, MAX_NAME_BYTES, ToolCall},
    kit::{glob::Glob, per_tool::Name},
    text::with_buffer,
};

/// The decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Decision {
    /// Send the call.
    Allow,
    /// Refuse the call.
    Deny,
    /// Send the call once an approver has approved it.
    Ask,
}

crate::text::names! {
    /// Its name in messages.
    Decision { Allow = "allow", Deny = "deny", Ask = "ask" }
}

/// A rule of a policy: which calls it applies to, and what it decides about them. See the [module
/// docs](super) for an example.
///
/// It is for a call if all of its conditions hold. Patterns have one special character: `*`, any
/// text, also none. Upper case is not lower case.
///
/// # Names
///
/// A tool of a server has two names: its own one (`charge`) and the flat one (`pay__charge`). A
/// rule that denies or asks is for a tool if its pattern fits either, so `delete_*` is for the
/// tools of all servers. A rule that allows is narrower: the own name counts only if the separator
/// is not in it. Otherwise a server `evil` with a tool of its own `pay__charge` would be allowed
/// what `pay` is.
///
/// Names that were not [resolved](crate::identity) are a caller's words, and a router below may
/// still take `pay__charge` apart. A rule that denies or asks is then for what may come of it: for
/// `charge`, and for the server `pay`. The separator is known only of resolved calls; for others it
/// is `__`.
#[derive(Clone)]
#[must_use]
pub struct Rule {
    decision: Decision,
    /// The patterns for the names of tool and server.
    name: Arc<Name>,
    agent: Option<Glob>,
    effect: Option<Effect>,
    when: Option<Arc<When>>,
    pub(super) reason: Option<Arc<str>>,
}

type When = dyn Fn(&ToolCall) -> bool + Send + Sync;

/// The effect of a tool according to its annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    ReadOnly,
    MayWrite,
    MayDestroy,
}

impl Rule {
    /// Allows calls of the tools with a name that fits the pattern.
    pub fn allow(tool: &str) -> Self {
        Self::new(Decision::Allow, tool)
    }

    /// Denies them.
    pub fn deny(tool: &str) -> Self {
        Self::new(Decision::Deny, tool)
    }

    /// Asks the approver.
    pub fn ask(tool: &str) -> Self {
        Self::new(Decision::Ask, tool)
    }

    fn new(decision: Decision, tool: &str) -> Self {
        Self {
            decision,
            name: Arc::new(Name::new(Glob::new(tool), None)),
            agent: None,
            effect: None,
            when: None,
            reason: None,
        }
    }

    /// Limits the rule to tools of servers with a name that fits this pattern. Default: tools of
    /// all servers, and those without a server.
    pub fn of_server(mut self, server: &str) -> Self {
        let tool = self.name.tool.clone();
        self.name = Arc::new(Name::new(tool, Some(Glob::new(server))));
        self
    }

    /// Limits the rule to calls of agents with an [id](ToolCall::agent_id) that fits this pattern.
    /// A call without an id does not match. Default: all calls.
    ///
    /// The first call without an id that a layer allows, although it has such a rule that denies or
    /// asks, is the event `tool.inert`.
    ///
    /// An id is as reliable as the code that wrote it on the call. Nothing in this crate takes one
    /// from a request: if you do, let no caller choose it who is not known.
    pub fn for_agent(mut self, agent: &str) -> Self {
        self.agent = Some(Glob::new(agent));
        self
    }

    /// Limits the rule to tools that are known to change nothing, by
    /// [annotations](super::PolicyLayer::with_annotations) that are believed. Of this,
    /// [`may_write`](Self::may_write) and [`may_destroy`](Self::may_destroy) the last one counts.
    pub fn read_only(mut self) -> Self {
        self.effect = Some(Effect::ReadOnly);
        self
    }

    /// Limits the rule to tools that are not known to change nothing, including unknown tools.
    pub fn may_write(mut self) -> Self {
        self.effect = Some(Effect::MayWrite);
        self
    }

    /// Limits the rule to tools that are neither known to change nothing nor known to destroy
    /// nothing, including unknown tools.
    pub fn may_destroy(mut self) -> Self {
        self.effect = Some(Effect::MayDestroy);
        self
    }

    /// Limits the rule to calls for which the function returns true. It sees the call as it will be
    /// sent; it must be quick, and must not block. If it is set several times, all functions must
    /// return true. Default: all calls.
    pub fn when(mut self, is_it: impl Fn(&ToolCall) -> bool + Send + Sync + 'static) -> Self {
        self.when = Some(match self.when.take() {
            Some(before) => Arc::new(move |call| before(call) && is_it(call)),
            None => Arc::new(is_it),
        });
        self
    }

    /// Sets why the rule is there: for the approver, and for developers in the message of a
    /// refusal. A model does not see it. Default: none.
    pub fn because(mut self, reason: impl Into<Arc<str>>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Returns the decision about the calls that match.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns the reason that [`because`](Self::because) has set.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Returns the pattern for the tool's name.
    pub fn tool(&self) -> &str {
        self.name.tool.as_str()
    }

    /// Returns whether all calls that the other one is for are for this one.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let covers = |own: &Option<Glob>, other: &Option<Glob>| match (own, other) {
            (None, _) => true,
            (Some(own), Some(other)) => own.covers(other),
            (Some(_), None) => false,
        };
        self.when.is_none()
            && self
                .effect
                .is_none_or(|own| other.effect.is_some_and(|other| own.covers(other)))
            && self.name.tool.covers(&other.name.tool)
            && covers(&self.name.server, &other.name.server)
            && covers(&self.agent, &other.agent)
    }

    /// Returns whether it denies calls of some agents, or asks before them.
    pub(super) fn holds_back_agents(&self) -> bool {
        self.agent.is_some() && self.decision != Decision::Allow
    }

    pub(super) fn name(&self) -> &Arc<Name> {
        &self.name
    }

    fn is_named(&self, names: &Names<'_>) -> bool {
        let Names { call, flat, .. } = *names;
        let (tool, server) = (&self.name.tool, self.name.server.as_ref());
        let is_of = |name: Option<&str>| {
            server.is_none_or(|glob| name.is_some_and(|name| glob.matches(name)))
        };
        let is_flat = tool.matches(flat);
        let is_it = match self.decision {
            Decision::Allow => {
                let is_own = !names.has_separator;
                is_of(call.server()) && (is_flat || is_own && tool.matches(call.tool()))
            }
            Decision::Deny | Decision::Ask => {
                (is_flat || tool.matches(call.tool())) && is_of(call.server())
                    || names.readings().any(|(before, own)| {
                        (is_flat || tool.matches(own))
                            && (is_of(Some(before)) || is_of(call.server()))
                    })
            }
        };
        if is_it {
            self.name.matched();
        }
        is_it
    }

    /// `known` is asked at most once, and only if the names fit.
    fn is_for(&self, names: &Names<'_>, known: &mut impl FnMut() -> Annotations) -> bool {
        let call = names.call;
        let of_agent = |agent: &Glob| call.agent_id().is_some_and(|id| agent.matches(id));
        self.agent.as_ref().is_none_or(of_agent)
            && self.is_named(names)
            && self.effect.is_none_or(|effect| effect.is_of(known()))
            && self.when.as_ref().is_none_or(|is_it| is_it(call))
    }
}

impl Effect {
    /// A tool that may destroy may write.
    fn covers(self, other: Self) -> bool {
        self == other || (self, other) == (Self::MayWrite, Self::MayDestroy)
    }

    fn is_of(self, known: Annotations) -> bool {
        let reads = known.read_only == Some(true);
        match self {
            Self::ReadOnly => reads,
            Self::MayWrite => !reads,
            Self::MayDestroy => !reads && known.destructive != Some(false),
        }
    }
}

crate::text::debug_fields! {
    {} |this| Rule {
        decision,
        tool: this.name.tool,
        server: this.name.server,
        agent, effect, reason, ..
    }
}

/// The first rule that is for the call.
pub(super) fn first_for<'r>(
    rules: &'r [Rule],
    call: &ToolCall,
    known: impl Fn() -> Annotations,
) -> Option<&'r Rule> {
    // Asked once, and only if a rule needs them.
    let mut found = None;
    let mut known = || *found.get_or_insert_with(&known);
    let mut first = |flat: &str| {
        let names = Names {
            call,
            flat,
            has_separator: call.tool().contains(call.separator()),
        };
        rules.iter().find(|rule| rule.is_for(&names, &mut known))
    };
    match call.server() {
        None => first(call.tool()),
        Some(server) => with_buffer(|flat| {
            flat.push_str(server);
            flat.push_str(call.separator());
            flat.push_str(call.tool());
            first(flat)
        }),
    }
}

/// The names of a call, of which the flat one is that of the tool if it has no server.
struct Names<'a> {
    call: &'a ToolCall,
    flat: &'a str,
    /// Set if the tool's own name could be split.
    has_separator: bool,
}

impl Names<'_> {
    /// Returns how a router may read a name that was not resolved: pairs of server and tool.
    fn readings(&self) -> impl Iterator<Item = (&str, &str)> {
        let (name, separator) = (self.call.tool(), self.call.separator());
        // No tool service sends a longer name.
        let is_open =
            self.has_separator && !self.call.is_resolved() && name.len() <= MAX_NAME_BYTES;
        let places = is_open.then(|| name.char_indices()).into_iter().flatten();
        places.filter_map(move |(at, _)| Some((&name[..at], name[at..].strip_prefix(separator)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Identity;

    fn resolved(server: &str, tool: &str) -> ToolCall {
        ToolCall::new("any").resolved(&Identity::new(tool).with_server(server))
    }

    fn is_for(rule: &Rule, call: &ToolCall) -> bool {
        is_for_known(rule, call, Annotations::default())
    }

    fn is_for_known(rule: &Rule, call: &ToolCall, known: Annotations) -> bool {
        first_for(std::slice::from_ref(rule), call, || known).is_some()
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rules = [
            Rule::allow("read_public"),
            Rule::deny("read_*"),
            Rule::ask("*"),
        ];
        let decided = |name: &str| {
            let call = ToolCall::new(name);
            first_for(&rules, &call, Annotations::default).map(Rule::decision)
        };
        assert_eq!(decided("read_public"), Some(Decision::Allow));
        assert_eq!(decided("read_secret"), Some(Decision::Deny));
        assert_eq!(decided("write"), Some(Decision::Ask));
        let call = ToolCall::new("write");
        assert!(first_for(&rules[..2], &call, Annotations::default).is_none());
    }

    #[test]
    fn a_rule_is_for_both_names_of_a_tool() {
        for make in [Rule::allow, Rule::deny, Rule::ask] {
            let call = resolved("pay", "charge");
            assert!(is_for(&make("charge"), &call));
            assert!(is_for(&make("pay__*"), &call));
            assert!(!is_for(&make("shop__*"), &call));
            assert!(is_for(&make("*").of_server("pay"), &call));
            assert!(!is_for(&make("*").of_server("p"), &call));
            assert!(!is_for(&make("*").of_server("*"), &ToolCall::new("charge")));
        }
    }

    /// A server chooses the names of its tools, and must not come by another server's rights.
    #[test]
    fn a_tool_that_is_named_like_another_servers_is_not_allowed_by_its_rule() {
        let call = resolved("evil", "pay__charge");
        assert!(!is_for(&Rule::allow("pay__*"), &call));
        assert!(!is_for(&Rule::allow("*").of_server("pay"), &call));
        assert!(is_for(&Rule::deny("pay__*"), &call));
        assert!(is_for(&Rule::allow("evil__*"), &call));
        let dots = Identity::new("pay.charge").with_server("evil");
        let call = ToolCall::new("any").resolved(&dots.with_separator("."));
        assert!(!is_for(&Rule::allow("pay.*"), &call));
        assert!(is_for(&Rule::allow("evil.pay.*"), &call));
    }

    /// Without an identity layer, a router below takes the name apart after the policy.
    #[test]
    fn a_name_that_was_not_resolved_does_not_get_around_a_rule() {
        let spelled = [
            ToolCall::new("pay__charge"),
            ToolCall::new("pay__charge").with_server("pay"),
            ToolCall::new("charge").with_server("pay"),
        ];
        for call in &spelled {
            for rule in [
                Rule::deny("charge"),
                Rule::ask("pay__charge"),
                Rule::deny("*").of_server("pay"),
                Rule::deny("ch*").of_server("pay"),
            ] {
                assert!(is_for(&rule, call), "{rule:?} {call:?}");
            }
        }
        assert!(!is_for(
            &Rule::deny("charge"),
            &resolved("pay", "x__charge")
        ));
        assert!(!is_for(&Rule::allow("charge"), &spelled[0]));
        assert!(is_for(&Rule::allow("pay__charge"), &spelled[0]));
        let long = ToolCall::new("_".repeat(1 << 20));
        assert!(!is_for(&Rule::deny("x"), &long));
    }

    #[test]
    fn a_rule_for_agents_is_for_calls_with_such_an_id() {
        let rule = Rule::deny("*").for_agent("intern-*");
        assert!(is_for(&rule, &ToolCall::new("a").with_agent_id("intern-1")));
        assert!(!is_for(&rule, &ToolCall::new("a").with_agent_id("boss")));
        assert!(!is_for(&rule, &ToolCall::new("a")));
    }

    /// Unknown effects count as the worse ones.
    #[test]
    fn annotations_are_believed_where_they_are_known() {
        let call = ToolCall::new("a");
        let (yes, no) = (Some(true), Some(false));
        for (read_only, destructive, effects) in [
            (None, None, [false, true, true]),
            (yes, None, [true, false, false]),
            (yes, yes, [true, false, false]),
            (no, None, [false, true, true]),
            (None, no, [false, true, false]),
            (None, yes, [false, true, true]),
        ] {
            let known = Annotations {
                read_only,
                destructive,
            };
            let rule = || Rule::deny("*");
            let rules = [rule().read_only(), rule().may_write(), rule().may_destroy()];
            let found = rules.map(|rule| is_for_known(&rule, &call, known));
            assert_eq!(found, effects, "{known:?}");
        }
    }

    #[test]
    fn several_functions_have_to_say_yes_all() {
        let rule = Rule::deny("*")
            .when(|call| call.arguments().is_empty())
            .when(|call| call.id().is_some());
        assert!(!is_for(&rule, &ToolCall::new("a")));
        assert!(is_for(&rule, &ToolCall::new("a").with_id("1")));
    }

    #[test]
    fn a_rule_covers_what_is_narrower_in_all_it_says() {
        let deny = || Rule::deny("fs_*");
        for (rule, is_covered) in [
            (Rule::allow("fs_read"), true),
            (Rule::allow("*"), false),
            (Rule::allow("fs_*").of_server("a"), true),
            (Rule::allow("fs_*").may_write(), true),
            (Rule::allow("fs_*").for_agent("a").when(|_| true), true),
        ] {
            assert_eq!(deny().covers(&rule), is_covered, "{rule:?}");
        }
        let writes = || Rule::deny("*").may_write();
        assert!(writes().covers(&Rule::allow("*").may_destroy()));
        assert!(!Rule::deny("*").may_destroy().covers(&writes()));
        assert!(!writes().covers(&Rule::allow("*").read_only()));
        for narrow in [
            deny().of_server("a"),
            deny().for_agent("a"),
            deny().read_only(),
            deny().when(|_| true),
        ] {
            assert!(!narrow.covers(&Rule::allow("fs_read")), "{narrow:?}");
        }
    }
}
