//! Locks and condition variables whose poisoning is ignored.
//!
//! A panicking thread leaves data behind our locks that is valid by itself, so the other threads
//! continue.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Locks a mutex, even after a thread has panicked with it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading, even after a thread has panicked with the lock.
pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing, even after a thread has panicked with the lock.
pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on a condition variable for at most `longest`.
pub fn wait_timeout<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, longest: Duration) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, longest).unwrap_or_else(PoisonError::into_inner).0
}
