//! How the example `fleet` finds a server.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt as _, symlink},
};

use super::*;

/// A program that is a server only under the name of one, as Debian's `redis-check-rdb` is.
fn many_names(server: &std::path::Path) -> String {
    let server = server.display();
    format!("#!/bin/sh\n[ \"${{0##*/}}\" = redis-server ] || exit 1\nexec '{server}' \"$@\"\n")
}

/// S-7: the server is a link, or a link to a link as Debian's alternatives are.
#[tokio::test]
async fn fleet_starts_a_server_that_is_a_link_to_a_program_of_many_names() {
    let dir = std::env::temp_dir().join(format!("tt-links-{}", std::process::id()));
    for links in [
        &["bin/redis-server"][..],
        &["etc/redis-server", "bin/redis-server"],
    ] {
        for part in ["bin", "etc"] {
            fs::create_dir_all(dir.join(part)).unwrap();
        }
        let program = dir.join("bin/redis-check-rdb");
        fs::write(&program, many_names(&server::program("redis").unwrap())).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let mut to = program;
        for link in links {
            let link = dir.join(link);
            symlink(&to, &link).unwrap();
            to = link;
        }

        let started = store::Server::start(dir.join("bin").as_os_str()).await;
        let mut started = started.unwrap().expect("there is a server");
        let client = redis::Client::open(started.url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let pong = redis::cmd("PING")
            .query_async::<String>(&mut connection)
            .await;
        assert_eq!(pong.unwrap(), "PONG");
        started.kill();
        fs::remove_dir_all(&dir).unwrap();
    }
}
