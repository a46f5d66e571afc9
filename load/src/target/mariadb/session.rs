//! The connection of one client, and the common part of all operations on it.

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Error, Params, Statement};

use super::super::Failure;
use crate::operation::{Item, User};

/// Maximum attempts for a transaction. Real applications that fan out give up after a few.
const ATTEMPTS_MAX: usize = 10;

/// "Too many connections", in total and for one user.
const REFUSED: [u16; 2] = [1040, 1203];

/// "Lock wait timeout exceeded" and "Deadlock found": in both cases the transaction can be repeated.
const CONFLICT: [u16; 2] = [1205, 1213];

/// Maps an error to a failure of the operation.
pub(super) fn failure(cause: Error) -> Failure {
    match cause {
        Error::Server(cause) if REFUSED.contains(&cause.code) => Failure::Refused(cause.to_string()),
        Error::Server(cause) => Failure::Failed(cause.to_string()),
        other => Failure::of(&other),
    }
}

fn is_conflict(cause: &Error) -> bool {
    matches!(cause, Error::Server(met) if CONFLICT.contains(&met.code))
}

/// The connection of a client.
pub(super) struct Session {
    connection: Conn,
}

impl Session {
    pub(super) fn new(connection: Conn) -> Self {
        Self { connection }
    }

    /// Prepares a statement that lives as long as the connection.
    pub(super) async fn prepare(&mut self, statement: &str) -> Result<Statement, Failure> {
        self.connection.prep(statement).await.map_err(failure)
    }

    /// Executes a statement and fetches its rows.
    pub(super) async fn rows<T: FromRow + Send + 'static>(
        &mut self,
        statement: &Statement,
        parameters: impl Into<Params> + Send,
    ) -> Result<Vec<T>, Failure> {
        self.connection.exec(statement, parameters.into()).await.map_err(failure)
    }

    /// Fetches rows and counts them.
    pub(super) async fn count(
        &mut self,
        statement: &Statement,
        parameters: impl Into<Params> + Send,
    ) -> Result<usize, Failure> {
        let mut rows = self.connection.exec_iter(statement, parameters.into()).await.map_err(failure)?;
        let mut count = 0;
        rows.for_each(|_| count += 1).await.map_err(failure)?;
        Ok(count)
    }

    /// Fetches rows of post, author and body.
    pub(super) async fn items(
        &mut self,
        statement: &Statement,
        parameters: impl Into<Params> + Send,
    ) -> Result<Vec<Item>, Failure> {
        let rows: Vec<(u64, User, String)> = self.rows(statement, parameters).await?;
        Ok(rows.into_iter().map(|(id, author, body)| Item { id, author, body }).collect())
    }

    /// Executes a single statement, and repeats it if it conflicts with another transaction.
    pub(super) async fn once(&mut self, statement: &Statement, parameters: impl Into<Params>) -> Result<(), Failure> {
        let parameters = parameters.into();
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.connection.exec_drop(statement, parameters.clone()).await {
                Err(cause) if is_conflict(&cause) && attempts < ATTEMPTS_MAX => {}
                done => return done.map_err(failure),
            }
        }
    }

    /// Executes all `steps` in one transaction, and repeats it if it conflicts with another one.
    pub(super) async fn transaction<T>(
        &mut self,
        mut steps: impl AsyncFnMut(&mut Conn) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let cause = match attempt(&mut self.connection, &mut steps).await {
                Ok(done) => return Ok(done),
                Err(cause) => cause,
            };
            // After a lock wait timeout the transaction is still open; after a deadlock the server has rolled it back.
            if !cause.is_fatal() {
                self.connection.query_drop("ROLLBACK").await.map_err(failure)?;
            }
            if !is_conflict(&cause) || attempts == ATTEMPTS_MAX {
                return Err(failure(cause));
            }
        }
    }
}

async fn attempt<T>(
    connection: &mut Conn,
    steps: &mut impl AsyncFnMut(&mut Conn) -> Result<T, Error>,
) -> Result<T, Error> {
    connection.query_drop("START TRANSACTION").await?;
    let done = steps(connection).await?;
    connection.query_drop("COMMIT").await?;
    Ok(done)
}
