//! Memories and pools: what each promises, what a pool's file may be, and what a power cut leaves
//! of a simulated one.

mod contract;
mod direct;
mod fault_handlers;
mod hashing;
mod logged;
mod parts;
mod persistence;
mod pools;
mod simulated;
mod windows;
