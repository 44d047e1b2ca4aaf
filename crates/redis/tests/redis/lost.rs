//! What is lost with a server, or on the way to it.

use super::*;

/// C8: the loss of the server costs no call and nothing that is known; a new one is told what
/// holds.
#[tokio::test]
async fn while_the_server_is_gone_each_process_goes_on_alone() {
    let mut server = Server::redis().await;
    let [a, b] = fleet(&server.url()).await;
    a.fails("first");
    a.breaker("admin").force_open();
    until("an opening", || b.state("first") == Open).await;

    server.kill();
    until("the loss", || {
        a.is_up() == Some(false) && b.is_up() == Some(false)
    })
    .await;
    a.fails("second");
    assert!(a.breaker("second").admit().is_err());
    assert_eq!([b.state("first"), b.state("second")], [Open, Closed]);

    server.restart().await;
    let time = until("the return", || b.state("second") == Open).await;
    println!("what was learnt meanwhile is known {time:?} after the server's return");
    let late = Process::start(&server.url());
    until("what the others know", || {
        late.state("first") == Open && late.state("admin") == ForcedOpen
    })
    .await;
    until("an exchange", || a.is_up() == Some(true)).await;
}

/// C8: a server that hangs holds nobody back.
#[tokio::test]
async fn a_server_that_hangs_is_asked_again_and_tells_all_when_it_goes_on() {
    let server = Server::redis().await;
    let [a, b] = fleet(&server.url()).await;
    server.signal("STOP");
    a.fails("search");
    // These do not wait: they are no futures.
    assert!(a.breaker("search").admit().is_err());
    assert!(b.breaker("search").admit().is_ok());
    until("the loss", || a.is_up() == Some(false)).await;
    sleep(millis(2_000)).await;
    server.signal("CONT");
    until("an opening", || b.state("search") == Open).await;
    until("meeting again", || a.shared.snapshot().processes == 2).await;
}

/// C8: connections that are closed while they are idle are made again, and nobody is told that the
/// store is down.
#[tokio::test]
async fn a_connection_that_was_closed_is_made_again_at_once() {
    let server = Server::redis().await;
    let [a, b] = fleet(&server.url()).await;
    for n in 0..5 {
        let kill: &[&[u8]] = &[b"CLIENT", b"KILL", b"TYPE", b"pubsub"];
        assert_eq!(server.run::<usize>(kill).await, 2);
        let tool = format!("tool{n}");
        a.fails(&tool);
        until("an opening", || b.state(&tool) == Open).await;
    }
    // Fewer than the connections that were closed: a busy server may answer late.
    for process in [a, b] {
        assert!(process.shared.snapshot().failed_total < 5);
    }
}

/// C8: whatever part of its data a server has thrown away, it is told all again.
#[tokio::test]
async fn what_a_server_throws_away_is_told_again() {
    let server = Server::redis().await;
    let [a, b] = fleet(&server.url()).await;
    a.fails("search");
    until("an opening", || b.state("search") == Open).await;
    for part in ["meta", "log", "text", "over", "peers"] {
        let key = format!("{{tt:default}}:{part}");
        assert_eq!(server.run::<usize>(&[b"DEL", key.as_bytes()]).await, 1);
        until("meeting again", || a.shared.snapshot().processes == 2).await;
        let late = Process::start(&server.url());
        until(part, || late.state("search") == Open).await;
    }
}

/// C8: a server that begins again with an older copy of its data, as after a failover.
#[tokio::test]
async fn an_older_copy_is_told_what_it_lacks() {
    let server = Server::redis().await;
    let [a, b] = fleet(&server.url()).await;
    a.fails("first");
    until("an opening", || b.state("first") == Open).await;
    let parts = ["meta", "log", "text", "over"].map(|part| format!("{{tt:default}}:{part}"));
    let mut copy = Vec::new();
    for key in &parts {
        copy.push(server.run::<Vec<u8>>(&[b"DUMP", key.as_bytes()]).await);
    }
    a.fails("second");
    until("an opening", || b.state("second") == Open).await;
    let lua =
        b"for n, key in ipairs(KEYS) do redis.call('RESTORE', key, 0, ARGV[n], 'REPLACE') end";
    let mut command: Vec<&[u8]> = vec![b"EVAL", lua, b"4"];
    command.extend(parts.iter().map(String::as_bytes));
    command.extend(copy.iter().map(Vec::as_slice));
    let () = server.run(&command).await;
    let late = Process::start(&server.url());
    until("all", || {
        late.state("first") == Open && late.state("second") == Open
    })
    .await;
}

/// C8: the moment from which what is kept is forgotten by the server itself.
#[tokio::test]
async fn nothing_is_kept_for_ever() {
    let server = Server::redis().await;
    let [a, _b] = fleet::<2>(&server.url()).await;
    a.fails("search");
    until("telling", || a.shared.snapshot().told_total == 1).await;
    let keys: Vec<String> = server.run(&[b"KEYS", b"*"]).await;
    assert_eq!(keys.len(), 5, "{keys:?}");
    for key in keys {
        let left: i64 = server.run(&[b"TTL", key.as_bytes()]).await;
        // Forced states are kept for a week, also if the last write was an opening.
        let days = if key.ends_with("peers") { 1 } else { 8 };
        let range = (days * 86_400 - 600)..=(days * 86_400);
        assert!(range.contains(&left), "{key}: {left}");
    }
}
