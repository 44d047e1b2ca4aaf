//! OpenTelemetry: the fields of spans, and sampling. Exports are tested with whole stacks.

mod fields;
mod sampling;
