use super::limit::Place;

crate::kit::hold::response_future! {
    /// Response future for [`ConcurrencyLimit`](super::ConcurrencyLimit).
    Place
}
