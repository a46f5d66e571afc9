//! WebSocket connections outside of actix-http's dispatcher, which takes 3 KB and 16 KiB of buffers for each connection.

use std::cell::RefCell;
use std::future::{poll_fn, ready};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_codec::{Encoder, Framed};
use actix_http::error::{DispatchError, PayloadError};
use actix_http::{BoxedPayloadStream, Request, Response, h1};
use actix_service::{IntoServiceFactory, fn_factory, fn_service};
use actix_web::Error;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{AppConfig, Payload, Service, ServiceFactory, ServiceResponse};
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::rt::time::timeout;
use actix_web::web::{Bytes, BytesMut};
use futures_core::Stream;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf, split};
use tracing::error;

use tidewire::limits::UNREAD_BYTES_MAX;

/// Maximum time for a write to a WebSocket or to the client of a declined upgrade.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for which the server reads from a client after the last response, before it closes the socket. Without this, unread data could
/// make the system discard the response.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// An upgrade request with its socket.
type Upgrade<T> = (Request, Framed<T, h1::Codec>);

/// The first part of an upgraded connection, which answers the request, and the part that sends the body and lasts. Each has its own
/// memory, so that a connection keeps only that of the second.
type Answering = Pin<Box<dyn Future<Output = Result<Sending, Error>>>>;
type Sending = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

thread_local! {
    /// The upgraded connection of the dispatcher that this thread polls. The dispatcher ends in the same poll, and [`serve_upgradable`] takes it.
    static UPGRADED: RefCell<Option<Answering>> = const { RefCell::new(None) };
}

/// Serves a connection with a dispatcher of `http`, and then the connection that it has upgraded. Meanwhile the dispatcher's memory is free.
pub(super) fn serve_upgradable<R, S>(socket: R, http: &S) -> impl Future<Output = Result<(), DispatchError>> + use<R, S>
where
    S: Service<R, Response = (), Error = DispatchError>,
{
    let dispatcher = Box::pin(http.call(socket));
    async move {
        let ended = dispatcher.await;
        let Some(answering) = UPGRADED.take() else { return ended };
        let failed = |cause: Error| {
            // The peer error log counts errors with this target as errors of the dispatcher.
            error!(target: "actix_http", "cannot serve an upgraded connection: {cause}");
            DispatchError::Upgrade
        };
        answering.await.map_err(failed)?.await.map_err(failed)
    }
}

/// Answers upgrade requests with an application that `app` creates for each worker.
pub(super) fn upgrades<T, A, F, S>(
    app: A,
) -> impl ServiceFactory<
    Upgrade<T>,
    Config = (),
    Response = (),
    Error = Error,
    InitError = (),
    Future: 'static,
    Service = impl Service<Upgrade<T>, Response = (), Error = Error, Future: 'static> + 'static,
> + 'static
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
    A: Fn() -> F + 'static,
    F: IntoServiceFactory<S, Request>,
    S: ServiceFactory<
            Request,
            Config = AppConfig,
            Response = ServiceResponse,
            Error = actix_web::Error,
            InitError = (),
        > + 'static,
{
    fn_factory(move || {
        let app = app().into_factory().new_service(AppConfig::default());
        async move {
            let app = Rc::new(app.await?);
            Ok(fn_service(move |upgrade: Upgrade<T>| {
                UPGRADED.set(Some(Box::pin(answer(Rc::clone(&app), upgrade))));
                ready(Ok(()))
            }))
        }
    })
}

async fn answer<T, S>(app: Rc<S>, (request, framed): Upgrade<T>) -> Result<Sending, Error>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
    S: Service<Request, Response = ServiceResponse, Error = Error>,
{
    let parts = framed.into_parts();
    let (mut codec, mut out) = (parts.codec, parts.write_buf);
    let (socket, mut writing) = split(parts.io);
    let socket = Rc::new(RefCell::new(socket));
    let early = Some(parts.read_buf.freeze()).filter(|early| !early.is_empty());
    let received: BoxedPayloadStream = Box::pin(Received { early, socket: Rc::clone(&socket) });
    let payload = Payload::Stream { payload: received };
    let answered = app.call(request.replace_payload(payload).0).await;
    let response = answered.map_or_else(|cause| cause.error_response(), |answered| answered.into_parts().1);
    let (response, body): (_, BoxBody) = response.into_parts();
    let mut response = Response::from(response);
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        // The end of the connection marks the end of the body, which is not sent in chunks here.
        response.head_mut().set_connection_type(ConnectionType::Close);
        response.head_mut().no_chunking(true);
    }
    codec.encode(h1::Message::Item((response, body.size())), &mut out)?;
    write(&mut writing, &mut out).await?;
    Ok(Box::pin(send(codec, body, writing, socket)))
}

/// Writes a body, and ends the connection.
async fn send<T: AsyncRead + AsyncWrite + Unpin>(
    mut codec: h1::Codec,
    body: BoxBody,
    mut writing: WriteHalf<T>,
    socket: Rc<RefCell<ReadHalf<T>>>,
) -> Result<(), Error> {
    let mut out = BytesMut::new();
    {
        // The body is dropped as soon as it is written: from then on the connection is idle and may be closed in favor of another one.
        let mut body = pin!(body);
        while let Some(chunk) = poll_fn(|task| body.as_mut().poll_next(task)).await {
            let chunk = chunk.map_err(|cause| io::Error::other(cause.to_string()))?;
            codec.encode(h1::Message::Chunk(Some(chunk)), &mut out)?;
            write(&mut writing, &mut out).await?;
        }
    }
    writing.shutdown().await?;
    // If a socket is closed with unread data, the system sends a reset and may discard the data written last.
    let _ = timeout(LINGER, take_rest(Received { early: None, socket })).await;
    Ok(())
}

/// Reads and discards further data of the client, up to the limit for the body of any other request that was answered early.
async fn take_rest<T: AsyncRead>(mut rest: Received<T>) {
    let mut bytes = 0;
    while bytes < UNREAD_BYTES_MAX
        && let Some(Ok(piece)) = poll_fn(|task| Pin::new(&mut rest).poll_next(task)).await
    {
        bytes += piece.len();
    }
}

/// Writes all of `out` and releases its memory.
async fn write<T: AsyncWrite>(socket: &mut WriteHalf<T>, out: &mut BytesMut) -> io::Result<()> {
    let out = std::mem::take(out);
    let write = async {
        socket.write_all(&out).await?;
        // A TLS stream buffers data until it is flushed.
        socket.flush().await
    };
    timeout(SEND_TIMEOUT, write).await.map_err(io::Error::from)?
}

/// The bytes that a client sends, read directly from the socket.
struct Received<T> {
    /// The bytes that were read together with the request.
    early: Option<Bytes>,
    socket: Rc<RefCell<ReadHalf<T>>>,
}

/// Bytes per read; small because clients send little data.
const READ_BYTES: usize = 512;

impl<T: AsyncRead> Stream for Received<T> {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(early) = self.early.take() {
            return Poll::Ready(Some(Ok(early)));
        }
        let mut bytes = [0; READ_BYTES];
        let mut read = ReadBuf::new(&mut bytes);
        let polled = Pin::new(&mut *self.socket.borrow_mut()).poll_read(task, &mut read);
        polled.map(|result| match (result, read.filled()) {
            (Err(cause), _) => Some(Err(cause.into())),
            (Ok(()), []) => None,
            (Ok(()), received) => Some(Ok(Bytes::copy_from_slice(received))),
        })
    }
}
