//! Methods that set options one by one.

/// Declares chainable methods that set fields of a struct of options; `const` if the fields have no
/// destructors.
macro_rules! setters {
    (const $options:ident: $($field:ident: $kind:ty),+ $(,)?) => {
        impl $options {
            $(crate::core::setters::setters!(@one (const) $field: $kind);)+
        }
    };
    ($options:ident: $($field:ident: $kind:ty),+ $(,)?) => {
        impl $options {
            $(crate::core::setters::setters!(@one () $field: $kind);)+
        }
    };
    (@one ($($constant:tt)?) $field:ident: $kind:ty) => {
        #[doc = concat!(
            "The same options with another [`", stringify!($field), "`](Self#structfield.",
            stringify!($field), ")."
        )]
        #[must_use]
        pub $($constant)? fn $field(mut self, $field: $kind) -> Self {
            self.$field = $field;
            self
        }
    };
}

pub(crate) use setters;
