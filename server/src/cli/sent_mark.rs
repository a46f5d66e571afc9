//! Marks that a request may have left this machine.

use std::cell::Cell;

use ureq::Error;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};

thread_local! {
    /// True if the last request of this thread may have been sent. The HTTP client sends a request on the calling thread.
    static IS_SENT: Cell<bool> = const { Cell::new(false) };
}

/// Removes the mark before a request.
pub(crate) fn clear() {
    IS_SENT.set(false);
}

/// Returns true if any byte of this thread's request may have been sent since [`clear`].
pub(crate) fn is_set() -> bool {
    IS_SENT.get()
}

/// The last connector of a chain. Its connections set the mark.
#[derive(Debug)]
pub(crate) struct MarkSent;

impl<In: Transport> Connector<In> for MarkSent {
    type Out = Marking<In>;

    fn connect(&self, _: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        Ok(chained.map(Marking))
    }
}

/// A connection that sets the mark.
#[derive(Debug)]
pub(crate) struct Marking<T>(T);

impl<T: Transport> Transport for Marking<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.0.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        IS_SENT.set(true);
        self.0.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.0.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.0.is_open()
    }

    fn is_tls(&self) -> bool {
        self.0.is_tls()
    }
}
