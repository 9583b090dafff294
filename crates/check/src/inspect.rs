//! Single structures in words, for people.
