//! One cancel, three processes.

use polyglot_host::{Host, median_and_worst};

const ROUNDS: usize = 50;

#[tokio::test(flavor = "multi_thread")]
async fn i12_one_cancel_of_the_users_ends_the_handlers_of_three_processes() {
    let mut host = Host::start().await.expect("the servers: `make build` builds what they need");
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        took.push(host.round().await.expect("three handlers begin, and end"));
    }
    host.quiet().await.expect("no request is left");
    let (median, worst) = median_and_worst(took);
    println!(
        "cancel to the last handler's end, {ROUNDS} rounds: median {median:.1?}, worst {worst:.1?}"
    );
    assert_eq!(host.stop().await, 0, "processes are left");
}
