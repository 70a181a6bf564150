//! A service on loopback, played by the test: what the worker asks of it, the test answers.

use std::{error::Error, net::SocketAddr};

use hyper::{
    Request, Response,
    body::{Body, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, ToSocketAddrs},
    task::JoinSet,
};

/// A port that the system picks.
pub(crate) const ANY: &str = "127.0.0.1:0";

/// The service. Ends when dropped, and so do the connections to it.
#[derive(Debug)]
pub(crate) struct StandIn {
    pub(crate) address: SocketAddr,
    serving: JoinSet<()>,
}

impl StandIn {
    /// At that address, which may be [`ANY`].
    pub(crate) async fn at<A, F, B, E>(address: impl ToSocketAddrs, answer: A) -> Self
    where
        A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
        F: Future<Output = Result<Response<B>, E>> + Send + 'static,
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        let listener = TcpListener::bind(address).await.expect("a port");
        let (address, mut serving) = (listener.local_addr().expect("an address"), JoinSet::new());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer.clone()));
                // One that the worker has given up on, or that ends with it, is no error here.
                connections.spawn(async move { drop(serving.await) });
            }
        });
        Self { address, serving }
    }

    /// It is gone, and so are the connections to it.
    pub(crate) async fn dies(mut self) -> SocketAddr {
        self.serving.shutdown().await;
        self.address
    }
}
