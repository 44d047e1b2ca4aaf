//! What went wrong in other systems: whose token it is.

use tower_toolcall::{
    ToolCall,
    token::{Target, TokenLayer},
};

use super::kit::{Provider, SECOND, Stack, Upstream, call, orders};

/// H2: "unrelated users can receive each other's delegated tokens" (mcp-context-forge#5224).
#[tokio::test(start_paused = true)]
async fn nobody_gets_the_token_of_another_subject() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let stack = Stack::new(&provider.layer(), &upstream);
    for subject in ["alice", "bob", "alic", "alicee", "ALICE", "alice "] {
        let token = stack.send(call(subject)).await.unwrap();
        assert!(token.starts_with(&format!("{subject}->")), "{token}");
    }
    assert_eq!(provider.asked(), 6);
}

/// H2: the second human of a shared session acts as the first (kagent#2108).
#[tokio::test(start_paused = true)]
async fn a_session_an_agent_or_an_id_is_no_identity() {
    let stack = Stack::new(&Provider::default().layer(), &Upstream::default());
    let same = |call: ToolCall| {
        let call = call.with_session_id("s").with_agent_id("a").with_id("1");
        call.with_trace_id("t")
    };
    assert_eq!(
        stack.send(same(call("alice"))).await.unwrap(),
        "alice->orders[]#1"
    );
    assert_eq!(
        stack.send(same(call("bob"))).await.unwrap(),
        "bob->orders[]#2"
    );
}

/// H2: pools keyed by a part of what makes a token (mcp-context-forge#2055).
#[tokio::test(start_paused = true)]
async fn each_part_of_a_target_makes_another_token() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let targets = [
        orders(),
        orders().with_scope("read"),
        orders().with_scope("write"),
        orders().with_scope("read write"),
        orders().with_resource("https://a.example"),
        Target::resource("https://a.example"),
        Target::audience("Orders"),
    ];
    let mut layer = provider.layer();
    for (n, target) in targets.iter().enumerate() {
        layer = layer.with_tool(format!("t{n}"), target.clone());
    }
    let stack = Stack::new(&layer, &upstream);
    for n in 0..targets.len() {
        let call = ToolCall::new(format!("t{n}")).with_subject_token("alice");
        assert!(
            stack
                .send(call)
                .await
                .unwrap()
                .ends_with(&format!("#{}", n + 1))
        );
    }
    assert_eq!(provider.asked(), targets.len());
}

/// The order of scopes is no part of it.
#[tokio::test(start_paused = true)]
async fn the_same_scopes_in_another_order_are_the_same_target() {
    let provider = Provider::default();
    let layer = provider
        .layer()
        .with_tool("a", orders().with_scope("read").with_scope("write"))
        .with_tool("b", orders().with_scope("write read"));
    let stack = Stack::new(&layer, &Upstream::default());
    for tool in ["a", "b"] {
        let call = ToolCall::new(tool).with_subject_token("alice");
        stack.send(call).await.unwrap();
    }
    assert_eq!(provider.asked(), 1);
}

/// H2: two providers are two layers, with tokens of their own.
#[tokio::test(start_paused = true)]
async fn the_tokens_of_two_providers_are_kept_apart() {
    let (one, other, upstream) = (
        Provider::default(),
        Provider::default(),
        Upstream::default(),
    );
    for provider in [&one, &other] {
        let stack = Stack::new(&provider.layer(), &upstream);
        stack.send(call("alice")).await.unwrap();
    }
    assert_eq!((one.asked(), other.asked()), (1, 1));
}

/// H2: the caller's own token goes to no tool unless that is asked for (fastmcp#1985).
#[tokio::test(start_paused = true)]
async fn the_subjects_own_token_is_passed_by_an_explicit_word_only() {
    let (provider, upstream) = (Provider::default(), Upstream::default());
    let stack = Stack::new(&TokenLayer::new(provider.service()), &upstream);
    assert_eq!(stack.send(call("alice")).await.unwrap(), "none");
    let stack = Stack::new(&provider.layer().pass_subject("order"), &upstream);
    assert_eq!(stack.send(call("alice")).await.unwrap(), "alice");
    let error = stack.send(ToolCall::new("order")).await.unwrap_err();
    assert_eq!(error.kind(), tower_toolcall::ErrorKind::Denied);
    assert_eq!(provider.asked(), 0);
}

/// H2: a server that has a tool of the same name gets no token for it, and not the caller's own.
#[tokio::test(start_paused = true)]
async fn a_server_gets_no_token_by_the_name_of_anothers_tool() {
    let provider = Provider::default();
    let evil = || call("alice").with_server("evil");
    for layer in [provider.layer(), provider.layer().pass_subject("order")] {
        let stack = Stack::new(&layer, &Upstream::default());
        assert_eq!(stack.send(evil()).await.unwrap(), "none");
    }
    let layer = provider
        .layer()
        .with_server("evil", Target::audience("evil"));
    let stack = Stack::new(&layer, &Upstream::default());
    assert_eq!(stack.send(evil()).await.unwrap(), "alice->evil[]#1");
}

/// A token that is on the call already, from a layer above or a mistake, is not taken for this
/// one's.
#[tokio::test(start_paused = true)]
async fn an_upstream_token_of_another_tool_is_replaced() {
    let stack = Stack::new(&Provider::default().layer(), &Upstream::default());
    let mut call = call("alice");
    call.extensions_mut()
        .insert(tower_toolcall::token::UpstreamToken::new("other"));
    assert_eq!(stack.send(call).await.unwrap(), "alice->orders[]#1");
}

/// Strangers' subjects make keys, and no more than so many.
#[tokio::test(start_paused = true)]
async fn the_number_of_tokens_is_bounded() {
    let provider = Provider::default();
    let layer = provider.layer().with_max_keys(8).unwrap();
    let stack = Stack::new(&layer, &Upstream::default());
    for n in 0..100 {
        let subject = format!("s{n}");
        let token = stack.send(call(&subject)).await.unwrap();
        assert!(token.starts_with(&format!("{subject}->")));
        assert!(layer.handle().len() <= 8);
    }
    tokio::time::sleep(SECOND).await;
}
