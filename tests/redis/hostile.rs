//! What others write into the store's keys, and publish on its channel.

use super::*;

const LOG: &[u8] = b"{tt:default}:log";
const TEXT: &[u8] = b"{tt:default}:text";
const OVER: &[u8] = b"{tt:default}:over";
const META: &[u8] = b"{tt:default}:meta";

/// Writes an entry as a process would, but with whatever in it.
async fn write(server: &Server, field: &[u8], number: &str, text: &[u8]) {
    let score = number.as_bytes();
    let _: usize = server.run(&[b"ZADD", LOG, score, field]).await;
    let _: usize = server.run(&[b"ZADD", OVER, b"9e15", field]).await;
    let _: usize = server.run(&[b"HSET", TEXT, field, text]).await;
    let _: usize = server.run(&[b"HINCRBY", META, b"entries", b"1"]).await;
}

/// C8: what is no word is left out, and nobody is held up by it.
#[tokio::test]
async fn what_others_write_is_left_out() {
    let server = Server::redis().await;
    let [a, b] = fleet(&server.url(), 1).await;
    let long = "x".repeat(1 << 20);
    let entries: &[(&[u8], &[u8])] = &[
        (b"", b""),
        (b"no key", b"no text"),
        (b"\xff\xfe \xff", b"1 2 \xff"),
        (b"p tools\x1f=s\x1f=a", b"NaN 1e400 1 open 0"),
        (b"p tools\x1f=s\x1f=b", b"99999999999999999999 1 1 open 0"),
        (b"p tools\x1f=s\x1f=c", long.as_bytes()),
        (long.as_bytes(), b"1 2 1 open 0"),
        (
            b"p other\x1f=s\x1f=d",
            b"9007199254740000 9007199254740000 1 open 0",
        ),
    ];
    for (field, text) in entries {
        write(&server, field, "9007199254740000", text).await;
    }
    let _: usize = server
        .run(&[b"ZADD", b"{tt:default}:peers", b"9e15", long.as_bytes()])
        .await;
    let _: usize = server
        .run(&[b"ZADD", b"{tt:default}:peers", b"9e15", b"\xff"])
        .await;
    a.fails("search");
    until("an opening", || b.state("search") == Open).await;
    // A process that could not read them would never be up again.
    until("an exchange", || [a.is_up(), b.is_up()] == [Some(true); 2]).await;
    for tool in ["a", "b", "c", "d"] {
        assert_eq!(b.state(tool), Closed);
    }
}

/// C8.
#[tokio::test]
async fn a_key_of_another_type_is_a_store_that_is_down() {
    let server = Server::redis().await;
    let peers = b"{tt:default}:peers";
    let _: () = server.run(&[b"SET", peers, b"text"]).await;
    let a = Process::start(&server.url(), 1);
    until("the error", || a.is_up() == Some(false)).await;
    a.fails("search");
    assert_eq!(a.state("search"), Open);
    let _: usize = server.run(&[b"DEL", peers]).await;
    until("the return", || a.is_up() == Some(true)).await;
}

/// C8: what is no log of this script's begins again, and is told all that holds.
#[tokio::test]
async fn a_log_that_others_have_written_begins_again() {
    let server = Server::redis().await;
    let [a, b] = fleet(&server.url(), 1).await;
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

/// C8: messages are hints. However many come, and whatever they say, they open nothing, and exchanges are spaced.
#[tokio::test]
async fn messages_open_nothing_however_many_come() {
    let server = Server::redis().await;
    let [a, b] = fleet(&server.url(), 1).await;
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
    let [a, b] = fleet(&server.url(), 1).await;
    let lua = b"for n = 1, 100000 do
        redis.call('ZADD', KEYS[1], n, n)
        redis.call('HSET', KEYS[2], n, 'no word')
        redis.call('ZADD', KEYS[3], 9e15, n)
    end
    redis.call('HSET', KEYS[4], 'entries', 100000)";
    let _: () = server
        .run(&[b"EVAL", lua, b"4", LOG, TEXT, OVER, META])
        .await;
    a.fails("search");
    until("a refusal", || a.shared.snapshot().dropped_total > 0).await;
    assert_eq!(b.state("search"), Closed);
    assert_eq!(a.is_up(), Some(true));
}
