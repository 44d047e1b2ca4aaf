use super::limit::Tokens;

crate::kit::hold::response_future! {
    /// Response future for [`QuotaService`](super::QuotaService).
    Tokens
}
