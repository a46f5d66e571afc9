//! What is documentation of one operation beyond what the table of operations has, and how that reads as OpenAPI.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::http::openapi::problems::{self, Refusals};
use crate::http::openapi::schemas::{post, schema};
use crate::http::operation::{Needs, Operation, Right};

/// What is documentation of one operation.
pub(super) struct Documentation {
    summary: &'static str,
    says: String,
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: BTreeMap<u16, Value>,
    refusals: Refusals,
    /// What OpenAPI has no words for.
    extensions: Map<String, Value>,
}

/// Begins with what it does, in a few words.
pub(super) fn documented(summary: &'static str) -> Documentation {
    Documentation {
        summary,
        says: String::new(),
        parameters: Vec::new(),
        body: None,
        answers: BTreeMap::new(),
        refusals: Refusals::default(),
        extensions: Map::new(),
    }
}

impl Documentation {
    /// Says more, in sentences.
    pub(super) fn says(mut self, says: impl Into<String>) -> Self {
        self.says = says.into();
        self
    }

    /// Names a query parameter.
    pub(super) fn query(mut self, name: &str, says: &str, schema: Value) -> Self {
        self.parameters.push(json!({"name": name, "in": "query", "description": says, "schema": schema}));
        self
    }

    /// Gives an example of the parameter that was named last.
    pub(super) fn for_instance(mut self, example: &Value) -> Self {
        if let Some(parameter) = self.parameters.last_mut() {
            parameter["example"] = example.clone();
        }
        self
    }

    /// Names a header that clients may send.
    pub(super) fn header(mut self, name: &str, says: &str, schema: Value) -> Self {
        self.parameters.push(json!({"name": name, "in": "header", "description": says, "schema": schema}));
        self
    }

    /// Needs a body, a JSON object of at most so many bytes.
    pub(super) fn takes(self, schema_name: &str, bytes_max: usize, example: &Value) -> Self {
        self.body(true, schema_name, bytes_max, example)
    }

    /// Takes the same, or no body.
    pub(super) fn may_take(self, schema_name: &str, bytes_max: usize, example: &Value) -> Self {
        self.body(false, schema_name, bytes_max, example)
    }

    fn body(mut self, required: bool, schema_name: &str, bytes_max: usize, example: &Value) -> Self {
        self.body = Some(json!({
            "required": required,
            "description": format!("At most {bytes_max} bytes."),
            "content": {"application/json": {"schema": schema(schema_name), "example": example}},
        }));
        self
    }

    /// Answers JSON.
    pub(super) fn answers(self, status: u16, says: &str, schema_name: &str, example: &Value) -> Self {
        let content = json!({"application/json": {"schema": schema(schema_name), "example": example}});
        self.answer(status, json!({"description": says, "content": content}))
    }

    /// Answers without a body.
    pub(super) fn answers_nothing(self, status: u16, says: &str) -> Self {
        self.answer(status, json!({"description": says}))
    }

    /// Answers in a way of its own.
    pub(super) fn answer(mut self, status: u16, response: Value) -> Self {
        self.answers.insert(status, response);
        self
    }

    /// Refuses with one of these codes, besides what all operations of its kind refuse with.
    pub(super) fn refuses(mut self, status: u16, codes: &[&'static str]) -> Self {
        self.refusals.add(status, codes);
        self
    }

    /// Has to say what OpenAPI has no words for.
    pub(super) fn extension(mut self, name: &str, value: Value) -> Self {
        self.extensions.insert(name.to_owned(), value);
        self
    }

    /// All of it, as OpenAPI's operation object.
    pub(super) fn operation(self, of: &Operation, group: &str) -> Value {
        let path = path_parameters(of.path);
        let mut refusals = problems::of_kind(of.needs, of.work);
        let has_query = self.parameters.iter().any(|parameter| parameter["in"] == "query");
        problems::of_request(&mut refusals, !path.is_empty(), has_query, self.body.is_some());
        refusals.merge(self.refusals);
        let mut operation = self.extensions;
        let mut set = |name: &str, value: Value| operation.insert(name.to_owned(), value);
        set("operationId", json!(of.name));
        set("tags", json!([group]));
        set("summary", json!(self.summary));
        set("description", json!(format!("{} {}", self.says, who_may(of.needs, of.path)).trim()));
        set("parameters", json!(path.into_iter().chain(self.parameters).collect::<Vec<_>>()));
        set("security", if of.needs == Needs::Nothing { json!([]) } else { json!([{"bearer": []}]) });
        self.body.map(|body| set("requestBody", body));
        set("responses", responses(self.answers, &refusals));
        Value::Object(operation)
    }
}

/// Answers and refusals by status. Where one status is both, it has a content type for each.
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

/// The parts of a path that vary, each of which has a schema by its name.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let (of, says, example) = match name {
            "user" => ("SourceId", "The user; where only reading is done, a tag or topic as well.", json!("ann")),
            "source" => ("SourceId", "A user, `tag:NAME` or `topic:NAME`.", json!("bob")),
            "name" => ("ListName", "The name of the list.", json!("near")),
            _ => ("PostId", "The post.", post()["id"].clone()),
        };
        let schema = schema(of);
        json!({"name": name, "in": "path", "required": true, "description": says, "schema": schema, "example": example})
    };
    names.map(parameter).collect()
}

fn who_may(needs: Needs, path: &str) -> &'static str {
    match needs {
        Needs::Nothing => "Anybody may ask.",
        Needs::Server(Right::Read | Right::Write) => "With access control, the server key is needed.",
        Needs::Metrics => "With access control, the server key is needed, or one for metrics.",
        Needs::Own(Right::Read | Right::Write) => {
            "With access control, the server key is needed, or a token of the user in the path."
        }
        Needs::Author(Right::Read | Right::Write) if path.contains("{id}") => {
            "With access control, the server key is needed, or a token of the user whose post it is. To other users it is as if \
             the post was not there."
        }
        Needs::Author(Right::Read | Right::Write) => {
            "With access control, the server key is needed, or a token of the post's author."
        }
    }
}
