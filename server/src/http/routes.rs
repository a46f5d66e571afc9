//! Routes: every path, with the methods it takes.

use actix_web::http::Method;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, Resource, Route, guard};

use crate::console;
use crate::http::Api;
use crate::http::access::cors;
use crate::http::door::{self, Door};
use crate::http::open_paths::OpenPaths;
use crate::http::operation::{OPERATIONS, Operation};
use crate::http::problem::Problem;

/// Registers every path on an `App` that has an [`Api`](crate::http::Api) and its slot as data.
pub(super) fn routes(app: &mut ServiceConfig) {
    let all: Vec<(usize, &Operation)> = OPERATIONS.iter().enumerate().collect();
    for of_path in all.chunk_by(|(_, one), (_, other)| one.path == other.path) {
        let door =
            |(nth, operation): &(usize, &'static Operation)| (&operation.method, (operation.route)().wrap(Door(*nth)));
        app.service(resource(of_path[0].1.path, of_path.iter().map(door)));
    }
    app.configure(console_routes)
        .default_service(web::to(|request: HttpRequest| async move { nothing_here(&request) }));
}

/// The paths of the console and of the live client.
fn console_routes(app: &mut ServiceConfig) {
    for asset in console::ASSETS {
        let get = move |request: HttpRequest| async move {
            OpenPaths::refusal(&request).unwrap_or_else(|| {
                let mut answer = console::serve(&request, asset);
                cors::told(&request, answer.headers_mut());
                answer
            })
        };
        app.service(resource(asset.path, [(&Method::GET, web::to(get))].into_iter()));
    }
}

fn nothing_here(request: &HttpRequest) -> HttpResponse {
    OpenPaths::refusal(request).unwrap_or_else(|| door::nowhere(request, &Problem::not_found(request.path())))
}

/// A path with its methods; all others are refused with the list of those. `HEAD` is served where `GET` is.
fn resource<'a>(path: &str, methods: impl Iterator<Item = (&'a Method, Route)>) -> Resource {
    let mut allowed: Vec<String> = Vec::new();
    let mut resource = web::resource(path);
    for (method, route) in methods {
        allowed.push(method.to_string());
        if method == Method::GET {
            allowed.push(Method::HEAD.to_string());
            resource = resource.route(route.guard(guard::Any(guard::Get()).or(guard::Head())));
        } else {
            resource = resource.route(route.method(method.clone()));
        }
    }
    let allowed = allowed.join(", ");
    resource.default_service(web::to(move |request: HttpRequest| {
        let answer = preflight_or_refusal(&request, &allowed);
        async move { answer }
    }))
}

/// What a path answers to a method that it does not take: a browser that asks what another origin's page may is told.
fn preflight_or_refusal(request: &HttpRequest, allowed: &str) -> HttpResponse {
    if let Some(refusal) = OpenPaths::refusal(request) {
        return refusal;
    }
    let api = request.app_data::<Data<Api>>();
    api.and_then(|api| api.access.origins().preflight(request, allowed)).unwrap_or_else(|| {
        let method = request.method().as_str();
        door::nowhere(request, &Problem::method_not_allowed(method, allowed.to_owned()))
    })
}
