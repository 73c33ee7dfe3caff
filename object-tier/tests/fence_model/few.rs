//! A short list in a fixed place: states that own no memory are copied without the allocator.

/// At most `N` elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Few<T, const N: usize> {
    length: u8,
    items: [T; N],
}

impl<T: Copy + Default, const N: usize> Few<T, N> {
    pub(crate) fn new() -> Self {
        Self {
            length: 0,
            items: [T::default(); N],
        }
    }

    pub(crate) fn items(&self) -> &[T] {
        &self.items[..usize::from(self.length)]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends; the model is wrong if more than `N` come together.
    pub(crate) fn push(&mut self, item: T) {
        self.items[usize::from(self.length)] = item;
        self.length += 1;
    }

    pub(crate) fn replace(&mut self, index: usize, item: T) {
        self.items[index] = item;
    }

    pub(crate) fn remove(&mut self, index: usize) -> T {
        let length = usize::from(self.length);
        assert!(index < length, "{index} of {length}");
        let removed = self.items[index];
        self.items.copy_within(index + 1..length, index);
        self.length -= 1;
        removed
    }

    /// Adds to a list that is in order.
    pub(crate) fn insert(&mut self, item: T)
    where
        T: Ord,
    {
        let index = self.items().partition_point(|other| *other < item);
        let length = usize::from(self.length);
        self.items.copy_within(index..length, index + 1);
        self.items[index] = item;
        self.length += 1;
    }
}

impl<T: Copy + Default, const N: usize> Default for Few<T, N> {
    fn default() -> Self {
        Self::new()
    }
}
