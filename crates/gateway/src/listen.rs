//! Connections of clients, with limits of their number and of the time of a request's head.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{Router, body::Body, extract::ConnectInfo};
use hyper::{Request, body::Incoming};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, sync::Semaphore, time::sleep};
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt as _, service_fn};

/// How many connections there are at a time. Further ones wait.
const MAX_CONNECTIONS: usize = 1000;

/// The pause after a connection that could not be taken, for example for a lack of files.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `closed` fires and all connections have ended.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Router,
    head: Duration,
    closed: CancellationToken,
) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut builder = Builder::new(TokioExecutor::new());
    // The limit includes the time between two requests of a connection.
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(head);
    let mut http2 = builder.http2();
    http2.timer(TokioTimer::new());
    http2.keep_alive_interval(head).keep_alive_timeout(head);
    let accept = async || {
        let permit = Arc::clone(&connections).acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok(accepted) => return Some((accepted, permit)),
                Err(_) => sleep(PAUSE).await,
            }
        }
    };
    while let Some(Some(((tcp, peer), permit))) = closed.run_until_cancelled(accept()).await {
        // Otherwise the second part of each answer waits 40 ms until the client acknowledges the
        // first.
        let _ = tcp.set_nodelay(true);
        let (app, has_begun) = (app.clone(), Arc::new(AtomicBool::new(false)));
        let begins = Arc::clone(&has_begun);
        let service = service_fn(move |request: Request<Incoming>| {
            begins.store(true, Relaxed);
            let mut request = request.map(Body::new);
            // A client with failing arguments opens no breaker for others.
            request.extensions_mut().insert(ConnectInfo(peer));
            app.clone().oneshot(request)
        });
        let service = TowerToHyperService::new(service);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(tcp), service);
        let connection = graceful.watch(connection.into_owned());
        tokio::spawn(async move {
            let _permit = permit;
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                // Its errors are the client's.
                _ = &mut connection => return,
                () = sleep(head) => {}
            }
            // Hyper has no limit for the bytes that say which version of HTTP a client speaks.
            if has_begun.load(Relaxed) {
                let _ = connection.await;
            }
        });
    }
    drop(listener);
    graceful.shutdown().await;
}
