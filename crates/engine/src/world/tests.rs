//! Tests that the types of the world cannot be copied: the world is changed in place, and no plan may copy a value that is as large as the cluster.

use std::marker::PhantomData;

use super::World;
use crate::queue::pending::{ClassQueue, Member, Pending};
use crate::queue::sorted::Sorted;
use crate::quota::tree::{Node, Tree};
use crate::world::ids::{Arena, Interner, WorkloadId};
use crate::world::store::{Class, Holders, LocalQueue, Queue, Store, Workload};

/// Asks whether a type can be copied: the inherent constant exists only if the type is `Clone`, and takes precedence over the constant of the trait.
#[allow(dead_code, reason = "a type is asked, and no value of it")]
struct Copies<T>(PhantomData<T>);

trait Otherwise {
    const ARE_MADE: bool = false;
}

impl<T> Otherwise for Copies<T> {}

impl<T: Clone> Copies<T> {
    const ARE_MADE: bool = true;
}

#[test]
fn world_and_its_parts_cannot_be_cloned() {
    let of_world = [Copies::<World>::ARE_MADE, Copies::<Store>::ARE_MADE, Copies::<Tree>::ARE_MADE];
    assert_eq!(of_world, [false; 3], "world, store, tree");
    let of_lists = [
        Copies::<Arena<WorkloadId, u8>>::ARE_MADE,
        Copies::<Interner<WorkloadId, u8>>::ARE_MADE,
        Copies::<Sorted<Member>>::ARE_MADE,
        Copies::<Pending>::ARE_MADE,
        Copies::<ClassQueue>::ARE_MADE,
        Copies::<Holders>::ARE_MADE,
    ];
    assert_eq!(of_lists, [false; 6], "arena, interner, sorted, pending, class in a queue, holders");
    let of_objects = [
        Copies::<Workload>::ARE_MADE,
        Copies::<Class>::ARE_MADE,
        Copies::<LocalQueue>::ARE_MADE,
        Copies::<Queue>::ARE_MADE,
        Copies::<Node>::ARE_MADE,
    ];
    assert_eq!(of_objects, [false; 5], "workload, class, LocalQueue, queue, node");
    let of_others = [Copies::<Vec<u8>>::ARE_MADE, Copies::<WorkloadId>::ARE_MADE];
    assert_eq!(of_others, [true; 2], "what has copies is told apart");
}
