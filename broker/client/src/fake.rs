//! A journal service in memory, for tests.
