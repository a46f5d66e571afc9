//! One client's connection, and what all operations on it have in common.
//!
//! Responsible for:
//! - transactions that are tried again when they met another one;
//! - what an error of the server means.

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Error, Params, Statement};

use super::super::Failure;
use crate::operation::{Item, User};

/// How often a transaction is tried before it has failed. Applications that fan out give up after a few.
const ATTEMPTS_MAX: usize = 10;

/// "Too many connections", for all and for one user.
const REFUSED: [u16; 2] = [1040, 1203];

/// "Lock wait timeout exceeded" and "Deadlock found": both say to try again.
const MET_ANOTHER: [u16; 2] = [1205, 1213];

/// What an error means for the one who asked.
pub(super) fn failure(cause: Error) -> Failure {
    match cause {
        Error::Server(cause) if REFUSED.contains(&cause.code) => Failure::Refused(cause.to_string()),
        Error::Server(cause) => Failure::Failed(cause.to_string()),
        other => Failure::of(&other),
    }
}

fn is_to_be_tried_again(cause: &Error) -> bool {
    matches!(cause, Error::Server(met) if MET_ANOTHER.contains(&met.code))
}

/// A client's own connection.
pub(super) struct Session {
    connection: Conn,
}

impl Session {
    pub(super) fn new(connection: Conn) -> Self {
        Self { connection }
    }

    /// Prepares a statement for the life of the connection.
    pub(super) async fn prepare(&mut self, statement: &str) -> Result<Statement, Failure> {
        self.connection.prep(statement).await.map_err(failure)
    }

    /// Fetches rows.
    pub(super) async fn rows<T: FromRow + Send + 'static>(
        &mut self,
        statement: &Statement,
        parameters: impl Into<Params> + Send,
    ) -> Result<Vec<T>, Failure> {
        self.connection.exec(statement, parameters.into()).await.map_err(failure)
    }

    /// Fetches rows, and counts them.
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

    /// Does a single statement, again if another transaction was in the way.
    pub(super) async fn once(&mut self, statement: &Statement, parameters: impl Into<Params>) -> Result<(), Failure> {
        let parameters = parameters.into();
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.connection.exec_drop(statement, parameters.clone()).await {
                Err(cause) if is_to_be_tried_again(&cause) && attempts < ATTEMPTS_MAX => {}
                done => return done.map_err(failure),
            }
        }
    }

    /// Does all `steps` or nothing, again if another transaction was in the way.
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
            // After a lock wait timeout the transaction is still open; after a deadlock there is nothing to undo.
            if !cause.is_fatal() {
                self.connection.query_drop("ROLLBACK").await.map_err(failure)?;
            }
            if !is_to_be_tried_again(&cause) || attempts == ATTEMPTS_MAX {
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
