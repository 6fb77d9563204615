use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::*;

async fn get(diagnostics: &Diagnostics, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = router(diagnostics.clone()).oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_process_says_when_it_is_ready() {
    let diagnostics = Diagnostics {
        ready: Readiness::new(),
        metrics: None,
        log: None,
    };
    assert_eq!(
        get(&diagnostics, "/debug/ready").await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
    diagnostics.ready.set(true);
    assert_eq!(get(&diagnostics, "/debug/ready").await.0, StatusCode::OK);
    assert_eq!(
        get(&diagnostics, "/debug/metrics").await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        get(&diagnostics, "/debug/log-level").await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn metrics_keep_their_names_and_histograms_have_their_buckets() {
    let installed = Metrics::install().unwrap();
    metrics::counter!("gazette_test_total", "operation" => "Read").increment(3);
    metrics::histogram!("gazette_store_operation_duration_seconds", "store" => "s").record(0.03);
    metrics::histogram!("gazette_allocator_max_flow_runtime_seconds").record(0.2);
    let again = Metrics::install().unwrap();
    let ready = Readiness::new();
    let diagnostics = Diagnostics {
        ready,
        metrics: Some(again),
        log: None,
    };
    let (status, text) = get(&diagnostics, "/debug/metrics").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(text.lines().count(), installed.render().lines().count());
    for line in [
        "gazette_test_total{operation=\"Read\"} 3",
        "gazette_store_operation_duration_seconds_bucket{store=\"s\",le=\"0.04\"} 1",
        "gazette_allocator_max_flow_runtime_seconds_bucket{le=\"0.25\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
