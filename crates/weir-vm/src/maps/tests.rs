//! Tests of maps from outside a program, where the compiled programs cannot reach.

use super::*;
use crate::errno::ENOSPC;

fn definition(kind: MapKind, key_size: u32, value_size: u32, max_entries: u32) -> MapDefinition {
    MapDefinition::new("m", kind, key_size, value_size, max_entries)
}

fn map(kind: MapKind, key_size: u32, value_size: u32, max_entries: u32) -> Map {
    let mut d = definition(kind, key_size, value_size, max_entries);
    if kind == MapKind::LpmTrie {
        d.flags = BPF_F_NO_PREALLOC;
    }
    Map::new(d, 1).expect("valid definition")
}

fn errno(result: Result<(), MapError>) -> i64 {
    match result {
        Ok(()) => 0,
        Err(MapError::Kernel { errno, .. }) => errno,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn definitions_the_kernel_refuses() {
    let refused =
        |kind, key, value, entries| Map::new(definition(kind, key, value, entries), 1).is_err();
    assert!(refused(MapKind::Array, 8, 4, 1));
    assert!(refused(MapKind::Array, 4, 0, 1));
    assert!(refused(MapKind::Hash, 0, 4, 1));
    assert!(refused(MapKind::Hash, 4, 4, 0));
    assert!(refused(MapKind::LpmTrie, 8, 4, 1));
    assert!(refused(MapKind::RingBuf, 0, 0, 5000));
    assert!(refused(MapKind::RingBuf, 4, 0, 4096));
    assert!(refused(MapKind::Array, 4, VALUE_SIZE_MAX + 1, 1));
    assert!(refused(MapKind::Array, 4, 4096, u32::MAX));
    assert!(refused(MapKind::XskMap, 4, 8, 1));
}

#[test]
fn sizes_are_checked() {
    let mut m = map(MapKind::Hash, 4, 4, 2);
    assert!(matches!(
        m.update(&[0; 3], &[0; 4], 0),
        Err(MapError::KeySize { got: 3, .. })
    ));
    assert!(matches!(
        m.update(&[0; 4], &[0; 5], 0),
        Err(MapError::ValueSize { got: 5, .. })
    ));
    assert!(matches!(m.delete(&[0; 5]), Err(MapError::KeySize { .. })));
    assert_eq!(m.lookup(&[0; 5]), None);
}

#[test]
fn flags_and_limits_of_hashes() {
    let mut m = map(MapKind::Hash, 1, 1, 2);
    assert_eq!(errno(m.update(&[1], &[1], BPF_EXIST)), ENOENT);
    assert_eq!(errno(m.update(&[1], &[1], BPF_NOEXIST)), 0);
    assert_eq!(errno(m.update(&[1], &[1], BPF_NOEXIST)), EEXIST);
    assert_eq!(errno(m.update(&[1], &[1], 3)), EINVAL);
    assert_eq!(errno(m.update(&[1], &[1], BPF_F_LOCK)), EINVAL);
    assert_eq!(errno(m.update(&[2], &[2], BPF_ANY)), 0);
    assert_eq!(errno(m.update(&[3], &[3], BPF_ANY)), E2BIG);
    assert_eq!(errno(m.update(&[2], &[9], BPF_ANY)), 0);
    assert_eq!(m.value(&[2]), Some(&[9][..]));
    assert_eq!(errno(m.delete(&[3])), ENOENT);
    assert_eq!(errno(m.delete(&[1])), 0);
    assert_eq!((m.len(), m.keys().collect::<Vec<_>>()), (1, vec![vec![2]]));
}

#[test]
fn elements_are_reused_only_after_the_run() {
    let mut m = map(MapKind::Hash, 1, 8, 1);
    m.update_from_program(&[1], &[1; 8], 0, 0, 5).expect("fits");
    let first = m.find(&[1]).expect("exists");
    m.remove(&[1], 5).expect("exists");
    m.update_from_program(&[2], &[2; 8], 0, 0, 5).expect("fits");
    assert_ne!(m.find(&[2]), Some(first));
    assert_eq!(m.slot_value(first), Some(&[1; 8][..]));
    m.remove(&[2], 6).expect("exists");
    m.update_from_program(&[3], &[3; 8], 0, 0, 6).expect("fits");
    assert_eq!(m.find(&[3]), Some(first));
}

#[test]
fn memory_of_a_busy_hash_stays_bounded() {
    let mut m = map(MapKind::LruHash, 4, 8, 16);
    for i in 0u32..10_000 {
        m.update_from_program(&i.to_le_bytes(), &[0; 8], 0, 0, u64::from(i / 4))
            .expect("evicts");
    }
    assert_eq!(m.len(), 16);
    assert!(m.values.len() <= 64, "{} elements", m.values.len());
}

#[test]
fn least_recently_used_order_against_a_model() {
    let mut m = map(MapKind::LruHash, 4, 4, 8);
    let mut model: Vec<u32> = Vec::new();
    let mut x = 1u32;
    for step in 0..5_000u64 {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let key = (x >> 16) % 20;
        let bytes = key.to_le_bytes();
        match (x >> 8) % 3 {
            0 => {
                let found = m.find_from_program(&bytes).is_some();
                assert_eq!(found, model.contains(&key));
                if found {
                    model.retain(|k| *k != key);
                    model.insert(0, key);
                }
            }
            1 => {
                let removed = m.remove(&bytes, step).is_ok();
                assert_eq!(removed, model.contains(&key));
                model.retain(|k| *k != key);
            }
            _ => {
                m.update_from_program(&bytes, &bytes, 0, 0, step)
                    .expect("evicts");
                model.retain(|k| *k != key);
                model.insert(0, key);
                model.truncate(8);
            }
        }
        assert_eq!(m.len(), model.len());
    }
    for key in model {
        assert_eq!(m.value(&key.to_le_bytes()), Some(&key.to_le_bytes()[..]));
    }
}

#[test]
fn prefixes_against_a_model() {
    let mut m = map(MapKind::LpmTrie, 6, 4, 64);
    let mut model: Vec<(u32, u16, u32)> = Vec::new();
    let mut x = 7u32;
    let key = |length: u32, bits: u16| [&length.to_le_bytes()[..], &bits.to_be_bytes()].concat();
    let covers = |length: u32, a: u16, b: u16| length == 0 || (a ^ b) >> (16 - length) == 0;
    for _ in 0..4_000 {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (length, bits) = ((x >> 28) % 6, (x >> 12) as u16 & 0xf800);
        if x & 0x40 == 0 && model.len() < 60 {
            assert_eq!(errno(m.update(&key(length, bits), &x.to_le_bytes(), 0)), 0);
            model.retain(|(l, b, _)| *l != length || !covers(length, *b, bits));
            model.push((length, bits, x));
        } else {
            let known = model
                .iter()
                .any(|(l, b, _)| *l == length && covers(length, *b, bits));
            assert_eq!(
                errno(m.delete(&key(length, bits))),
                if known { 0 } else { ENOENT }
            );
            model.retain(|(l, b, _)| *l != length || !covers(length, *b, bits));
        }
        let asked = (x >> 5) as u16;
        let expected = model
            .iter()
            .filter(|(l, b, _)| covers(*l, *b, asked))
            .max_by_key(|(l, _, _)| *l)
            .map(|(_, _, v)| v.to_le_bytes().to_vec());
        assert_eq!(m.lookup(&key(16, asked)), expected);
    }
    assert_eq!(errno(m.update(&key(17, 0), &[0; 4], 0)), EINVAL);
}

#[test]
fn device_maps_take_zero_as_no_target() {
    let mut m = map(MapKind::DevMap, 4, 4, 2);
    assert_eq!(m.len(), 0);
    assert_eq!(errno(m.update(&[1, 0, 0, 0], &[5, 0, 0, 0], 0)), 0);
    assert_eq!((m.len(), m.find(&[0; 4])), (1, None));
    assert_eq!(errno(m.update(&[1, 0, 0, 0], &[0; 4], 0)), 0);
    assert_eq!(m.len(), 0);
    assert_eq!(errno(m.update(&[2, 0, 0, 0], &[5, 0, 0, 0], 0)), E2BIG);
}

#[test]
fn hashes_against_a_model() {
    let mut m = map(MapKind::Hash, 5, 3, 300);
    let mut model = std::collections::BTreeMap::new();
    let mut state = 7u32;
    for step in 0..20_000u32 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let number = (state >> 16) % 400;
        let mut key = [9; 5];
        key[..4].copy_from_slice(&number.to_le_bytes());
        if state.is_multiple_of(3) {
            let removed = model.remove(&key).is_some();
            assert_eq!(errno(m.delete(&key)), if removed { 0 } else { ENOENT });
        } else {
            let value = [step as u8, (step >> 8) as u8, 1];
            let full = model.len() == 300 && !model.contains_key(&key);
            assert_eq!(
                errno(m.update(&key, &value, 0)),
                if full { E2BIG } else { 0 }
            );
            if !full {
                model.insert(key, value);
            }
        }
        assert_eq!(m.value(&key), model.get(&key).map(|v| &v[..]));
    }
    assert!(model.len() > 100, "{} entries", model.len());
    let mut keys: Vec<_> = m.keys().collect();
    keys.sort();
    assert!(
        keys.iter()
            .map(Vec::as_slice)
            .eq(model.keys().map(|k| &k[..]))
    );
    for (key, value) in &model {
        assert_eq!(m.lookup(key).as_deref(), Some(&value[..]));
    }
}

#[test]
fn queues_and_stacks() {
    for (kind, order) in [(MapKind::Queue, [1, 2, 3]), (MapKind::Stack, [3, 2, 1])] {
        let mut m = map(kind, 0, 4, 3);
        assert_eq!(m.lookup(&[]), None);
        for value in 1..=3u32 {
            m.update(&[], &value.to_le_bytes(), BPF_ANY)
                .expect("there is room");
        }
        assert_eq!(m.len(), 3);
        assert_eq!(errno(m.update(&[], &[4; 4], BPF_ANY)), E2BIG);
        assert_eq!(errno(m.update(&[], &[4; 4], BPF_NOEXIST)), EINVAL);
        assert_eq!(m.lookup(&[]), Some(u32::to_le_bytes(order[0]).to_vec()));
        for value in order {
            assert_eq!(m.pop(), Some(u32::to_le_bytes(value).to_vec()));
        }
        assert_eq!(m.pop(), None);
    }
    // A full one makes room for the newest if told so: a queue loses its first, a stack its lowest.
    for (kind, next) in [(MapKind::Queue, 2u32), (MapKind::Stack, 4)] {
        let mut m = map(kind, 0, 4, 3);
        for value in 1..=4u32 {
            m.update(&[], &value.to_le_bytes(), BPF_EXIST)
                .expect("makes room");
        }
        assert_eq!((m.len(), m.pop()), (3, Some(next.to_le_bytes().to_vec())));
    }
}

#[test]
fn a_queue_behaves_as_a_list_of_values() {
    let mut random = 1u64;
    let mut next = |n: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % n
    };
    for stack in [false, true] {
        let kind = if stack {
            MapKind::Stack
        } else {
            MapKind::Queue
        };
        let mut m = map(kind, 0, 8, 5);
        let mut model: Vec<u64> = Vec::new();
        for step in 0..5_000u64 {
            match next(3) {
                0 => {
                    let taken = if stack {
                        model.pop()
                    } else {
                        (!model.is_empty()).then(|| model.remove(0))
                    };
                    assert_eq!(m.pop(), taken.map(|v| v.to_le_bytes().to_vec()));
                }
                kind => {
                    let flags = if kind == 1 { BPF_ANY } else { BPF_EXIST };
                    let done = errno(m.update(&[], &step.to_le_bytes(), flags));
                    if model.len() == 5 && flags == BPF_ANY {
                        assert_eq!(done, E2BIG);
                        continue;
                    }
                    assert_eq!(done, 0);
                    if model.len() == 5 {
                        model.remove(0);
                    }
                    model.push(step);
                }
            }
            assert_eq!(m.len(), model.len());
        }
    }
}

#[test]
fn bloom_filters_forget_nothing_and_rarely_invent() {
    let mut m = map(MapKind::BloomFilter, 0, 8, 1_000);
    for value in 0..1_000u64 {
        m.update(&[], &value.to_le_bytes(), BPF_ANY)
            .expect("is added");
    }
    assert_eq!(errno(m.update(&[], &[0; 8], BPF_NOEXIST)), EINVAL);
    assert!((0..1_000u64).all(|v| m.may_contain(&v.to_le_bytes())));
    let invented = (1_000..11_000u64).filter(|v| m.may_contain(&v.to_le_bytes()));
    let invented = invented.count();
    assert!((1..500).contains(&invented), "{invented} of 10,000");
    let mut bad = definition(MapKind::BloomFilter, 0, 8, 10);
    bad.extra = 16;
    assert!(Map::new(bad, 1).is_err());
    assert!(Map::new(definition(MapKind::Queue, 4, 8, 10), 1).is_err());
}

#[test]
fn frozen_maps_and_access_flags() {
    let key = [0; 4];
    let mut m = map(MapKind::Array, 4, 4, 2);
    m.update(&key, &[7; 4], BPF_ANY).expect("not frozen yet");
    m.freeze();
    assert_eq!(errno(m.update(&key, &[8; 4], BPF_ANY)), EPERM);
    assert_eq!(errno(m.delete(&key)), EPERM);
    assert!(m.value_mut(&key).is_none() && !m.is_constant());
    assert_eq!(m.lookup(&key), Some(vec![7; 4]));
    // Programs still write: the map is frozen for others.
    assert_eq!(m.update_from_program(&key, &[9; 4], BPF_ANY, 0, 1), Ok(()));

    let with = |flags| {
        let mut d = definition(MapKind::Hash, 4, 4, 2);
        d.flags = flags;
        Map::new(d, 1)
    };
    let mut read_only = with(BPF_F_RDONLY).expect("a valid combination");
    assert_eq!(errno(read_only.update(&key, &[1; 4], BPF_ANY)), EPERM);
    let mut write_only = with(BPF_F_WRONLY).expect("a valid combination");
    write_only
        .update(&key, &[1; 4], BPF_ANY)
        .expect("may be written");
    assert_eq!(write_only.lookup(&key), None);
    assert!(with(BPF_F_RDONLY | BPF_F_WRONLY).is_err());
    assert!(with(BPF_F_RDONLY_PROG | BPF_F_WRONLY_PROG).is_err());
    let hidden = with(BPF_F_WRONLY_PROG).expect("a valid combination");
    assert!(!hidden.readable_by_programs() && hidden.writable_by_programs());
}

#[test]
fn perf_events_need_a_reader() {
    let mut m = map(MapKind::PerfEventArray, 4, 4, 4);
    let perf = m.perf_mut().expect("is one");
    assert_eq!(perf.output(0, vec![1]), Err(ENOENT));
    assert_eq!(perf.output(4, vec![1]), Err(E2BIG));
    perf.open(2, 64);
    assert_eq!(perf.output(1, vec![1; 16]), Ok(()));
    assert_eq!(perf.output(0, vec![2]), Ok(()));
    assert_eq!(perf.output(1, vec![3; 16]), Ok(()));
    assert_eq!(perf.output(1, vec![4]), Err(ENOSPC));
    assert_eq!(perf.output(2, vec![4]), Err(ENOENT));
    let records = perf.drain();
    assert_eq!(records, [(0, vec![2]), (1, vec![1; 16]), (1, vec![3; 16])]);
    assert_eq!(perf.output(1, vec![5]), Ok(()));
}
