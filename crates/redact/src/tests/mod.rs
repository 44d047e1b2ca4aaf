//! Tests of the whole module; the tables are in files of their own.

use serde_json::{Value, json};

use super::*;

mod encoded;
mod innocents;
mod keys;
mod limits;
mod registered;
mod secrets;
mod views;
