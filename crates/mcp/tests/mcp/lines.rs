//! Messages over stdio that are too large.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, BufReader};
use tower_toolcall_mcp::McpLines;
use tracing::Level;

use crate::observers::watch;

/// What rmcp reads of this text, in pieces of so many bytes: the messages that are JSON.
async fn read(text: &str, piece: usize) -> Vec<Value> {
    let pieces = BufReader::with_capacity(piece, text.as_bytes());
    let mut lines = McpLines::new(pieces).with_max_values(20);
    let mut read = String::new();
    lines.read_to_string(&mut read).await.unwrap();
    let messages = read.lines().map(serde_json::from_str);
    messages.filter_map(Result::ok).collect()
}

/// S-1: wherever the id stands, and whatever the members contain.
#[tokio::test]
async fn a_message_with_too_many_values_is_an_error_of_its_id() {
    let values = json!([["}", "\"", { "id": 9 }], "\\", [{ "id": [] }, 1, 2, 3, 4, 5, 6, 7, 8, 9]]);
    for (id, members) in [
        (json!(1), r#""id":1,"result":{"a":VALUES}"#),
        (json!("b"), r#""result":VALUES,"jsonrpc":"2.0","id":"b""#),
        (json!(3), r#""error":{"data":VALUES}, "id" : 3 "#),
        (json!("\"}"), r#""x":[VALUES],"id":"\"}""#),
    ] {
        let line = format!("{{{}}}\n", members.replace("VALUES", &values.to_string()));
        let small = json!({ "id": 2, "result": [1, 2, 3] });
        for piece in [1, 7, 4096] {
            let read = read(&format!("{line}{small}\r\n{line}"), piece).await;
            assert_eq!(read.len(), 3, "{line} {read:?}");
            let reason = "the message has more than 20 values";
            for refused in [&read[0], &read[2]] {
                assert_eq!(refused["id"], id, "{line} {refused}");
                assert_eq!(refused["error"]["message"], reason);
            }
            assert_eq!(read[1], small);
        }
    }
}

/// S-1: no call waits for it, so an event reports it.
#[tokio::test]
async fn a_notification_with_too_many_values_is_dropped_with_an_event() {
    let (seen, _guard) = watch();
    let values = json!(vec![0; 30]);
    let line = json!({ "method": "notifications/message", "params": values });
    let read = read(&format!("{line}\n"), 4096).await;
    assert!(read.is_empty(), "{read:?}");
    let events = &seen.0.lock().unwrap().1;
    assert_eq!(*events, [(Level::WARN, "tool.message_dropped".to_owned())]);
}

/// S-1: a message whose end arrives before the line is too large is dropped too.
#[tokio::test]
async fn the_beginning_of_a_dropped_line_is_no_message() {
    let values = json!(vec![0; 30]);
    let line = format!(r#"{{"id":4,"method":"tools/call"}} {values}"#);
    let read = read(&format!("{line}\n"), 7).await;
    assert!(read.is_empty(), "{read:?}");
}

/// No call is known to be meant, so an event reports it. The second one comes in two pieces.
#[tokio::test]
async fn an_error_without_an_id_is_dropped_with_an_event() {
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#;
    let large = format!(r#""error":{{"data":{},"#, json!(vec![0; 30]));
    let large = error.replace(r#""error":{"#, &large);
    for (line, piece) in [
        (error.to_owned(), 4096),
        (error.replace(r#""id":null,"#, ""), 7),
        (large.replace(r#""id":null,"#, ""), 4096),
        (large, 7),
    ] {
        let (seen, _guard) = watch();
        read(&format!("{line}\n"), piece).await;
        let events = &seen.0.lock().unwrap().1;
        assert_eq!(*events, [(Level::WARN, "tool.message_dropped".to_owned())]);
    }
}
