//! A real server on a free port of its own, and a client that reports what came back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use serde_json::Value;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire_server::http::auth::Access;
use tidewire_server::http::serve;
use tidewire_server::http::state::HttpState;

use crate::description;

pub struct Server {
    pub engine: Engine,
    address: SocketAddr,
    handle: actix_web::dev::ServerHandle,
    thread: Option<JoinHandle<()>>,
    agent: ureq::Agent,
}

/// What a request was answered with.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

impl Server {
    pub fn start(config: EngineConfig) -> Self {
        Self::of(Engine::start(config))
    }

    /// Serves an engine, and shuts it down at the end.
    pub fn of(engine: Engine) -> Self {
        Self::serving(HttpState::from(engine.clone()), engine)
    }

    /// Serves an engine to those who may.
    pub fn guarded(engine: Engine, access: Access) -> Self {
        Self::serving(HttpState { access: Arc::new(access), ..HttpState::from(engine.clone()) }, engine)
    }

    /// Serves this, and shuts the engine down at the end.
    pub fn serving(state: HttpState, engine: Engine) -> Self {
        let listener = serve::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let server = serve::server(state, listener, 2).unwrap();
                tell.send(server.handle()).unwrap();
                server.await.unwrap();
            });
        });
        let agent = ureq::Agent::config_builder().http_status_as_error(false).allow_non_standard_methods(true).build();
        let (handle, agent) = (told.recv().unwrap(), agent.new_agent());
        Self { engine, address, handle, thread: Some(thread), agent }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None, "")
    }

    pub fn post(&self, path: &str, json: &Value) -> Answer {
        self.json("POST", path, json)
    }

    pub fn json(&self, method: &str, path: &str, json: &Value) -> Answer {
        self.send(method, path, Some("application/json"), json.to_string())
    }

    /// Sends a request. The answer has to be one that the description knows.
    pub fn send(&self, method: &str, path: &str, content_type: Option<&str>, body: impl Into<Vec<u8>>) -> Answer {
        let headers: Vec<_> = content_type.map(|content_type| ("content-type", content_type)).into_iter().collect();
        self.ask(method, path, &headers, body)
    }

    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Answer {
        let mut request = ureq::http::Request::builder().method(method).uri(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body: Vec<u8> = body.into();
        let sent = body.clone();
        let is_typed = headers.iter().any(|(name, _)| *name == "content-type");
        let response = if body.is_empty() && !is_typed {
            self.agent.run(request.body(()).unwrap())
        } else {
            self.agent.run(request.body(body).unwrap())
        };
        let mut response = response.unwrap_or_else(|cause| panic!("{method} {path}: {cause}"));
        let text = response.body_mut().read_to_string().unwrap();
        let answer = Answer { status: response.status().as_u16(), headers: response.headers().clone(), text };
        if answer.status != 405 {
            description::check(method, path, &sent, &answer);
        }
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.engine.stop_live();
        let handle = self.handle.clone();
        // On a thread of its own: this one may belong to another runtime.
        let stop = move || actix_web::rt::System::new().block_on(handle.stop(true));
        let _ = thread::spawn(stop).join();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.engine.shutdown();
    }
}
