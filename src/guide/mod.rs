//! Pages to read: how to build, order, test and judge a stack. This module has no items to call.
//!
//! | page | answers |
//! |---|---|
//! | [`start`] | How do I build a stack, and why each layer? |
//! | [`order`] | Which layer goes where? |
//! | [`does_not_compile`] | What does the compiler mean? |
//! | [`mistakes`] | What do others get wrong, and what forbids it here? |
//! | [`testing`] | How do I test my tools, and my stack? |
//! | [`why`] | Why is it built this way, and what was refused? |
//! | [`from_tower_resilience`], [`from_reqwest_middleware`] | How does my code look here? |
//! | [`from_polly`], [`from_fastmcp`] | How does my C# or Python code look here? |
//! | [`names`] | What is it called in tower, tower-http, FastMCP and resilience4j? |
//! | [`examples`] | What can I run? |
//! | [`untrusted_callers`] | What can an untrusted caller do? |
//! | [`guarantees`] | What do all layers guarantee? |
//! | [`cost`] | What does it cost? |
//! | [`stability`] | What may a new version change? |
//! | [`comparison`] | What do others do, and where does this crate not compete? |

#[doc = include_str!("comparison.md")]
pub mod comparison {}

#[doc = include_str!("cost.md")]
pub mod cost {}

#[doc = include_str!("does_not_compile.md")]
pub mod does_not_compile {}

#[doc = include_str!("examples.md")]
pub mod examples {}

// Its code needs other members: `crates/mcp` compiles it.
#[cfg_attr(not(doctest), doc = include_str!("from_fastmcp.md"))]
pub mod from_fastmcp {}

#[doc = include_str!("from_polly.md")]
pub mod from_polly {}

#[doc = include_str!("from_reqwest_middleware.md")]
pub mod from_reqwest_middleware {}

#[doc = include_str!("from_tower_resilience.md")]
pub mod from_tower_resilience {}

#[doc = include_str!("guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("mistakes.md")]
pub mod mistakes {}

#[doc = include_str!("names.md")]
pub mod names {}

#[doc = include_str!("order.md")]
pub mod order {}

#[doc = include_str!("stability.md")]
pub mod stability {}

#[doc = include_str!("start.md")]
pub mod start {}

#[doc = include_str!("untrusted_callers.md")]
pub mod untrusted_callers {}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("why.md")]
pub mod why {}
