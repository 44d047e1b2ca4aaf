/// Emits one of our [events](crate::event::names::event) about a server, with some of our
/// [fields](crate::event::names::field).
macro_rules! emit {
    ($level:ident $name:ident, $server:expr $(, $field:ident = $value:expr)*) => {{
        use $crate::{event::{TARGET, names}, text::Short};
        let server: Option<&str> = $server;
        tracing::event!(
            name: names::event::$name,
            target: TARGET,
            tracing::Level::$level,
            { names::field::SERVER } = server.map(|s| tracing::field::display(Short::name(s))),
            $({ names::field::$field } = $value,)*
            "{}", names::event::$name
        )
    }};
}
pub(super) use emit;
