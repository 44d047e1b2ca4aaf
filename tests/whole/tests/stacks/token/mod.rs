//! Tokens: the layer, the endpoint, and identity providers of other authors.
mod canary;
mod chaos;
mod echo;
mod endpoint;
mod jobs;
mod kit;
mod layer;
mod lifetimes;
mod metrics;
mod mistakes;
mod providers;
mod refused;
mod routes;
mod settings;
mod strangers;
