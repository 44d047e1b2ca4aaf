//! Calls that are written down, and answered from that.

mod capture;
mod differ;
mod line;
mod player;
mod service;

pub use self::{
    capture::Capture,
    player::Replay,
    service::{CaptureLayer, CaptureService, ResponseFuture as CaptureFuture},
};
