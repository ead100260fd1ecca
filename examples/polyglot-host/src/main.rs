//! Runs the host for some rounds, and says how long each cancel took: `cargo run --release -p polyglot-host -- 50`.

use polyglot_host::{Host, median_and_worst};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let rounds = std::env::args().nth(1).map_or(Ok(50), |count| count.parse::<usize>())?;
    let mut host = Host::start().await?;
    let mut took = Vec::new();
    for _ in 0..rounds {
        took.push(host.round().await?);
    }
    let left = host.stop().await;
    let (median, worst) = median_and_worst(took);
    println!("from the cancel to the end of the last handler in three processes, {rounds} rounds:");
    println!("median {median:.1?}, worst {worst:.1?}; {left} processes are left");
    Ok(())
}
