//! Memory in a [`Mapping`](crate::mapping::Mapping).

/// Implements [`Memory`](crate::Memory) for a type by its fields `mapping` and `owner`.
macro_rules! memory_of_mapping {
    ($type:ty) => {
        impl $crate::Memory for $type {
            #[inline(always)]
            fn len(&self) -> u64 {
                self.mapping.len()
            }

            fn damaged(&self) -> Option<u64> {
                self.mapping.damaged()
            }

            #[inline(always)]
            fn condition(&self) -> u64 {
                self.mapping.condition()
            }

            #[inline(always)]
            fn is_at_work(&self) -> bool {
                self.owner.is_at_work()
            }

            #[inline(always)]
            fn is_of_parent(&self) -> bool {
                self.owner.is_of_parent()
            }

            fn end(&self) {
                self.owner.end();
            }

            fn last_lost(&self) -> u64 {
                self.mapping.last_lost()
            }

            fn watch(&self) {
                self.mapping.watch();
            }

            #[inline(always)]
            fn load(&self, at: u64, order: std::sync::atomic::Ordering) -> u64 {
                self.mapping.load(at, order)
            }

            #[inline(always)]
            fn store(&self, at: u64, value: u64, order: std::sync::atomic::Ordering) {
                self.noting(at, 8);
                self.wrote(8);
                self.mapping.store(at, value, order);
            }

            #[inline(always)]
            fn compare_exchange(&self, at: u64, current: u64, new: u64) -> Result<u64, u64> {
                self.noting(at, 8);
                let result = self.mapping.compare_exchange(at, current, new);
                if result.is_ok() {
                    self.wrote(8);
                }
                result
            }

            #[inline(always)]
            fn fetch_add(&self, at: u64, value: u64) -> u64 {
                self.noting(at, 8);
                self.wrote(8);
                self.mapping.fetch_add(at, value)
            }

            #[inline(always)]
            fn fetch_or(&self, at: u64, bits: u64) -> u64 {
                self.noting(at, 8);
                self.wrote(8);
                self.mapping.fetch_or(at, bits)
            }

            #[inline(always)]
            fn fetch_and(&self, at: u64, bits: u64) -> u64 {
                self.noting(at, 8);
                self.wrote(8);
                self.mapping.fetch_and(at, bits)
            }

            fn wait(&self, at: u64, seen: u64, limit: std::time::Duration) {
                self.mapping.wait(at, seen, limit);
            }

            fn wake(&self, at: u64) {
                self.mapping.wake(at);
            }

            #[inline]
            fn read(&self, at: u64, out: &mut [u8]) {
                if !self.read_by_call(at, out) {
                    self.mapping.read(at, out);
                }
            }

            #[inline]
            fn write(&self, at: u64, data: &[u8]) {
                self.noting(at, data.len() as u64);
                self.wrote(data.len() as u64);
                self.mapping.write(at, data);
            }

            #[inline]
            fn bytes_equal(&self, at: u64, expected: &[u8]) -> bool {
                self.mapping.bytes_equal(at, expected)
            }

            #[inline(always)]
            fn match_line(&self, at: u64, mask: u64, want: u64) -> u8 {
                self.mapping.match_line(at, mask, want)
            }

            #[inline(always)]
            fn load_line(&self, at: u64) -> [u64; 8] {
                self.mapping.load_line(at)
            }

            #[inline(always)]
            fn prefetch(&self, at: u64) {
                self.mapping.prefetch(at);
            }

            fn evict(&self, at: u64, len: u64) {
                self.mapping.evict(at, len);
            }
        }
    };
}
pub(crate) use memory_of_mapping;
