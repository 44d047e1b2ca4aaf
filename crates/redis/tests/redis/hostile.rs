//! What others write into the store's keys, and publish on its channel.

use super::*;

const LOG: &[u8] = b"{tt:default}:log";
const TEXT: &[u8] = b"{tt:default}:text";
const OVER: &[u8] = b"{tt:default}:over";
const PEERS: &[u8] = b"{tt:default}:peers";
const META: &[u8] = b"{tt:default}:meta";

/// Writes a register as a process would, but with anything in it.
async fn write(server: &Server, key: &[u8], text: &[u8]) {
    let lua = b"redis.call('ZADD', KEYS[1], 9007199254740000, ARGV[1])
    redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
    redis.call('ZADD', KEYS[3], 9e15, ARGV[1])
    redis.call('HSET', KEYS[4], 'seq', '9007199254740000')
    redis.call('HINCRBY', KEYS[4], 'entries', 1)";
    let _: () = server
        .run(&[b"EVAL", lua, b"4", LOG, TEXT, OVER, META, key, text])
        .await;
}

/// C8: a text that is not a register is left out, and holds nothing up.
#[tokio::test]
async fn what_others_write_is_left_out() {
    let server = Server::redis().await;
    let [a, b] = fleet(&server.url()).await;
    let long = "x".repeat(1 << 20);
    let far = b"9007199254740000 9007199254740000 2 open 0 0 0 reset 0";
    let entries: &[(&[u8], &[u8])] = &[
        (b"", b""),
        (b"no key", b"no text"),
        (b"\xff\xfe", b"1 2 \xff"),
        (b"tools\x1f=s\x1f=a", b"NaN 1e400 2 open 0 0 0 reset 0"),
        (
            b"tools\x1f=s\x1f=b",
            b"99999999999999999999 1 2 open 0 0 0 reset 0",
        ),
        (b"tools\x1f=s\x1f=c", long.as_bytes()),
        (b"tools\x1f=s\x1f=d", far),
        (long.as_bytes(), b"1 2 2 open 0 0 0 reset 0"),
        (b"other\x1f=s\x1f=e", far),
    ];
    for (key, text) in entries {
        write(&server, key, text).await;
    }
    let _: usize = server
        .run(&[b"ZADD", PEERS, b"9e15", long.as_bytes()])
        .await;
    let _: usize = server.run(&[b"ZADD", PEERS, b"9e15", b"\xff"]).await;
    a.fails("search");
    until("an opening", || b.state("search") == Open).await;
    // A process that could not read them would never be up again.
    until("an exchange", || [a.is_up(), b.is_up()] == [Some(true); 2]).await;
    for tool in ["a", "b", "c", "d"] {
        assert_eq!(b.state(tool), Closed);
    }
    // Nor does it stand in the way of what is learnt.
    for tool in ["a", "b", "c", "d"] {
        a.fails(tool);
        until(tool, || b.state(tool) == Open).await;
    }
}

/// C8: an open time is bounded by the settings of the process that takes it over.
#[tokio::test]
async fn an_opening_that_others_write_lasts_no_longer_than_the_settings_allow() {
    let server = Server::redis().await;
    let [_a, b] = fleet(&server.url()).await;
    let text = b"1 9007199254740000 2 open 0 0 0 reset 0";
    write(&server, b"tools\x1f=s\x1f=a", text).await;
    until("an opening", || b.state("a") == Open).await;
    let left = b.breaker("a").snapshot().retry_after;
    assert!(left.unwrap() <= millis(60_300), "{left:?}");
}

/// S-9a: a key of another type is replaced when the first process comes.
#[tokio::test]
async fn a_key_of_another_type_is_replaced() {
    let server = Server::redis().await;
    let _: () = server.run(&[b"SET", PEERS, b"text"]).await;
    let [a, b] = fleet(&server.url()).await;
    a.fails("search");
    until("an opening", || b.state("search") == Open).await;
}

/// S-9a: types that change while processes run, each key in turn.
#[tokio::test]
async fn a_key_whose_type_changes_while_processes_run_is_replaced() {
    let server = Server::redis().await;
    let [a, b] = fleet(&server.url()).await;
    for key in ["peers", "over", "text", "log", "meta"] {
        let name = format!("{{tt:default}}:{key}");
        // In one step: a process may write the key between two.
        let _: usize = server.run(&[b"RPUSH", b"other", b"item"]).await;
        let _: String = server.run(&[b"RENAME", b"other", name.as_bytes()]).await;
        a.fails(key);
        until(key, || b.state(key) == Open).await;
        until("meeting", || a.shared.snapshot().processes == 2).await;
    }
}

/// C8: what is no log of this script's begins again, and is told all that holds.
#[tokio::test]
async fn a_log_that_others_have_written_begins_again() {
    let server = Server::redis().await;
    let [a, b] = fleet(&server.url()).await;
    let long = "x".repeat(1 << 20);
    let writes: [&[&[u8]]; 5] = [
        &[b"HSET", META, b"seq", b"1e300"],
        &[b"HSET", META, b"seq", b"-1"],
        &[b"HSET", META, b"id", long.as_bytes()],
        &[b"SET", META, b"text"],
        &[b"SET", LOG, b"text"],
    ];
    for (n, write) in writes.into_iter().enumerate() {
        let tool = format!("tool{n}");
        let _: redis::Value = server.run(write).await;
        a.fails(&tool);
        until("an opening", || b.state(&tool) == Open).await;
    }
    until("an exchange", || [a.is_up(), b.is_up()] == [Some(true); 2]).await;
}

/// C8: messages are hints. However many come, and whatever they say, they open nothing, and
/// exchanges are spaced.
#[tokio::test]
async fn messages_open_nothing_however_many_come() {
    let server = Server::redis().await;
    let [a, b] = fleet(&server.url()).await;
    let before: usize = exchanges(&server).await;
    let begun = Instant::now();
    let lua = b"for n = 1, 10000 do redis.call('PUBLISH', KEYS[1], ARGV[1]) end";
    let opening = b"tools\x1f=s\x1f=search 1 open 0";
    for _ in 0..5 {
        let channel = b"{tt:default}:changed";
        let _: () = server.run(&[b"EVAL", lua, b"1", channel, opening]).await;
    }
    sleep(millis(500)).await;
    assert_eq!([a.state("search"), b.state("search")], [Closed, Closed]);
    let made = exchanges(&server).await - before;
    // Two processes, at most one each five milliseconds.
    let most = 2 * (begun.elapsed().as_millis() as usize / 5 + 2);
    assert!(made <= most, "{made} exchanges, {most} at most");
    a.fails("search");
    until("an opening", || b.state("search") == Open).await;
}

async fn exchanges(server: &Server) -> usize {
    let info: String = server.run(&[b"INFO", b"commandstats"]).await;
    let (_, calls) = info.split_once("cmdstat_evalsha:calls=").unwrap();
    calls.split_once(',').unwrap().0.parse().unwrap()
}

/// C8: a namespace that is full refuses further entries, and says so.
#[tokio::test]
async fn a_full_store_refuses() {
    let server = Server::redis().await;
    let [a, b] = fleet(&server.url()).await;
    let lua = b"for n = 1, 100000 do
        redis.call('ZADD', KEYS[1], n, n)
        redis.call('HSET', KEYS[2], n, 'no word')
        redis.call('ZADD', KEYS[3], 9e15, n)
    end
    redis.call('HSET', KEYS[4], 'entries', 100000, 'seq', 100000)";
    let _: () = server
        .run(&[b"EVAL", lua, b"4", LOG, TEXT, OVER, META])
        .await;
    a.fails("search");
    until("a refusal", || a.shared.snapshot().dropped_total > 0).await;
    assert_eq!(b.state("search"), Closed);
    assert_eq!(a.is_up(), Some(true));
}
