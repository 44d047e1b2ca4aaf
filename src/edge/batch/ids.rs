//! An id for each call: models match results to calls by it.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use crate::call::ToolCall;

/// Gives an id to each call that has none, or one that an earlier call has: some models number
/// their calls again from 1 with each answer, or not at all, and two results with one id would look
/// like one result.
pub(super) fn given(mut calls: Vec<ToolCall>) -> Vec<ToolCall> {
    let mut taken = HashSet::with_capacity(calls.len());
    let mut unnamed = Vec::new();
    for (n, call) in calls.iter().enumerate() {
        let info = call.info();
        let id = info.shared_id().filter(|id| !id.trim().is_empty());
        if !id.is_some_and(|id| taken.insert(Arc::clone(id))) {
            unnamed.push(n);
        }
    }
    let random = RandomState::new();
    let mut count = 0_u64;
    for n in unnamed {
        let id = loop {
            count += 1;
            let id: Arc<str> = format!("call_{:016x}", random.hash_one(count)).into();
            if taken.insert(Arc::clone(&id)) {
                break id;
            }
        };
        calls[n].set_id(id);
    }
    calls
}
