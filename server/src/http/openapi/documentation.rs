//! The documentation of one operation beyond the table of operations, and its encoding as OpenAPI.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::http::openapi::problems::{self, Refusals};
use crate::http::openapi::schemas::{post, schema};
use crate::http::operation::{Needs, Operation, Right};
use crate::http::post_json::Fields;
use tidewire::cluster::record::NODE_NAME_BYTES_MAX;

/// The documentation of one operation.
pub(super) struct Documentation {
    summary: &'static str,
    description: String,
    parameters: Vec<Value>,
    /// The body without its schema, and the function that adds the schema.
    body: Option<(Value, AddSchema)>,
    answers: BTreeMap<u16, Value>,
    refusals: Refusals,
    /// OpenAPI extension fields (`x-…`) of the operation.
    extensions: Map<String, Value>,
}

/// Adds a schema to a generator, and returns a reference to it.
type AddSchema = fn(&mut SchemaGenerator) -> Schema;

/// Starts the documentation of an operation with its summary.
pub(super) fn documented(summary: &'static str) -> Documentation {
    Documentation {
        summary,
        description: String::new(),
        parameters: Vec::new(),
        body: None,
        answers: BTreeMap::new(),
        refusals: Refusals::default(),
        extensions: Map::new(),
    }
}

impl Documentation {
    /// Sets the description.
    pub(super) fn description(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// Adds a query parameter. The values of an enumeration are strings.
    pub(super) fn query(mut self, name: &str, description: &str, mut schema: Value) -> Self {
        if schema.get("enum").is_some() {
            schema["type"] = json!("string");
        }
        self.parameters.push(json!({"name": name, "in": "query", "description": description, "schema": schema}));
        self
    }

    /// Adds the parameter that selects the fields of each post.
    pub(super) fn fields(self) -> Self {
        self.query(
            "fields",
            "`ids`: only the ids, author and time of each post. `counts`: also the numbers of its replies and reposts.",
            json!({"enum": Fields::NAMES}),
        )
    }

    /// Adds the parameter that selects the answering node of a cluster.
    pub(super) fn of_named_node(self) -> Self {
        self.query(
            "node",
            "The node of the cluster that answers. Default: the node that receives the request.",
            json!({"type": "string", "maxLength": NODE_NAME_BYTES_MAX}),
        )
    }

    /// Adds an example to the parameter that was added last.
    pub(super) fn for_instance(mut self, example: &Value) -> Self {
        if let Some(parameter) = self.parameters.last_mut() {
            parameter["example"] = example.clone();
        }
        self
    }

    /// Adds a request header.
    pub(super) fn header(mut self, name: &str, description: &str, schema: Value) -> Self {
        self.parameters.push(json!({"name": name, "in": "header", "description": description, "schema": schema}));
        self
    }

    /// Requires a body that is parsed as `T`: a JSON object of at most `bytes_max` bytes.
    pub(super) fn takes<T: JsonSchema>(self, bytes_max: usize, example: &Value) -> Self {
        self.body::<T>(true, bytes_max, example)
    }

    /// Allows an optional body.
    pub(super) fn may_take<T: JsonSchema>(self, bytes_max: usize, example: &Value) -> Self {
        self.body::<T>(false, bytes_max, example)
    }

    fn body<T: JsonSchema>(mut self, required: bool, bytes_max: usize, example: &Value) -> Self {
        let body = json!({
            "required": required,
            "description": format!("At most {bytes_max} bytes."),
            "content": {"application/json": {"example": example}},
        });
        self.body = Some((body, SchemaGenerator::subschema_for::<T>));
        self
    }

    /// Adds a response with a JSON body.
    pub(super) fn answers(self, status: u16, description: &str, schema_name: &str, example: &Value) -> Self {
        let content = json!({"application/json": {"schema": schema(schema_name), "example": example}});
        self.answer(status, json!({"description": description, "content": content}))
    }

    /// Adds a response without a body.
    pub(super) fn answers_nothing(self, status: u16, description: &str) -> Self {
        self.answer(status, json!({"description": description}))
    }

    /// Adds any other response.
    pub(super) fn answer(mut self, status: u16, response: Value) -> Self {
        self.answers.insert(status, response);
        self
    }

    /// Adds problem codes, in addition to the codes of all operations of the same kind.
    pub(super) fn refuses(mut self, status: u16, codes: &[&'static str]) -> Self {
        self.refusals.add(status, codes);
        self
    }

    /// Adds an OpenAPI extension field.
    pub(super) fn extension(mut self, name: &str, value: Value) -> Self {
        self.extensions.insert(name.to_owned(), value);
        self
    }

    /// Encodes the documentation as an OpenAPI operation object.
    pub(super) fn operation(self, of: &Operation, group: &str, generator: &mut SchemaGenerator) -> Value {
        let path = path_parameters(of.path);
        let mut refusals = problems::of_operation(of);
        let has_query = self.parameters.iter().any(|parameter| parameter["in"] == "query");
        problems::of_request(&mut refusals, !path.is_empty(), has_query, self.body.is_some());
        refusals.merge(self.refusals);
        let mut operation = self.extensions;
        let mut set = |name: &str, value: Value| operation.insert(name.to_owned(), value);
        set("operationId", json!(of.name));
        set("tags", json!([group]));
        set("summary", json!(self.summary));
        set("description", json!(format!("{} {}", self.description, who_may(of.needs, of.path)).trim()));
        set("parameters", json!(path.into_iter().chain(self.parameters).collect::<Vec<_>>()));
        set("security", if of.needs == Needs::Nothing { json!([]) } else { json!([{"bearer": []}]) });
        if let Some((mut body, schema)) = self.body {
            body["content"]["application/json"]["schema"] = schema(generator).to_value();
            set("requestBody", body);
        }
        set("responses", responses(self.answers, &refusals));
        Value::Object(operation)
    }
}

/// Returns the responses and refusals by status. If a status is used for both, it has one content type for each.
fn responses(answers: BTreeMap<u16, Value>, refusals: &Refusals) -> Value {
    let mut responses: Map<String, Value> =
        answers.into_iter().map(|(status, answer)| (status.to_string(), answer)).collect();
    for (status, mut problem) in refusals.responses() {
        if let Some(answer) = responses.remove(&status) {
            let described = |of: &Value| of["description"].as_str().unwrap_or_default().to_owned();
            problem["description"] = json!(format!("{} {}", described(&answer), described(&problem)));
            for (content_type, content) in answer["content"].as_object().into_iter().flatten() {
                problem["content"][content_type] = content.clone();
            }
        }
        responses.insert(status, problem);
    }
    Value::Object(responses)
}

/// Returns the path parameters. Each has a schema with its own name.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let (of, description, example) = match name {
            "user" => ("SourceId", "The user. Reads also accept any other source.", json!("ann")),
            "source" => (
                "SourceId",
                "A user, `tag:NAME`, `topic:NAME`, or `replies:POST` for the replies to a post: `POST` is its id, or `ext:` and its external id.",
                json!("bob"),
            ),
            "name" => ("ListName", "The name of the list.", json!("near")),
            "consumer" => ("ConsumerName", "The name of the consumer.", json!("search")),
            _ => ("PostName", "The post.", post()["id"].clone()),
        };
        let schema = schema(of);
        json!({"name": name, "in": "path", "required": true, "description": description, "schema": schema, "example": example})
    };
    names.map(parameter).collect()
}

fn who_may(needs: Needs, path: &str) -> &'static str {
    match needs {
        Needs::Nothing => "Needs no authentication.",
        Needs::Server(Right::Read | Right::Write) => "With access control, needs the server key.",
        Needs::Metrics => "With access control, needs the server key, or a key for metrics.",
        Needs::Own(Right::Read | Right::Write) => {
            "With access control, needs the server key, or a token of the user in the path."
        }
        Needs::Author(Right::Read | Right::Write) if path.contains("{id}") => {
            "With access control, needs the server key, or a token of the post's author. Other users get the same response \
             as for an unknown post."
        }
        Needs::User(Right::Read | Right::Write) => "With access control, needs the server key, or a token of a user.",
        Needs::Named(Right::Read | Right::Write) => {
            "With access control, needs the server key, or a token, which gets a refusal for each user except its own."
        }
        Needs::Author(Right::Read | Right::Write) => {
            "With access control, needs the server key, or a token of the post's author."
        }
    }
}
