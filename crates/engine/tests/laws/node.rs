//! Law of pods that get flavors of several resource groups: all these flavors can be of one node, and the pods are admitted if flavors of one node fit.
//!
//! A failed law prints its seed; `BERTH_SEED=<seed> BERTH_CASES=1` repeats the failure.

use std::collections::BTreeMap;

use crate::fixture::Scene;
use crate::worlds::{Dice, Named, seeds};
use berth_engine::Options;

/// A flavor of a resource group, with its node labels and its quota.
struct Flavor {
    labels: BTreeMap<String, u64>,
    quota: u64,
}

const RESOURCES: [&str; 3] = ["cpu", "gpu", "memory"];

/// Random resource groups, each with one resource.
fn random_groups(dice: &mut Dice) -> Vec<Vec<Flavor>> {
    let labels = |dice: &mut Dice| -> BTreeMap<String, u64> {
        let all = ["pool", "zone"].into_iter().filter(|_| dice.chance(2)).map(str::to_owned).collect::<Vec<_>>();
        all.into_iter().map(|key| (key, dice.below(2))).collect()
    };
    let flavors =
        |dice: &mut Dice| (0..=dice.below(3)).map(|_| Flavor { labels: labels(dice), quota: dice.below(3) }).collect();
    (0..2 + dice.below(2)).map(|_| flavors(dice)).collect()
}

/// The commands that make the world and request quota for one pod.
fn commands(groups: &[Vec<Flavor>], asked: &[u64]) -> String {
    let (mut text, mut quotas) = (String::new(), Vec::new());
    for (group, resource) in groups.iter().zip(RESOURCES) {
        let mut of_group = Vec::new();
        for (at, flavor) in group.iter().enumerate() {
            let labels: String = flavor.labels.iter().map(|(key, value)| format!(" label:{key}={value}")).collect();
            text += &format!("flavor {resource}{at}{labels}\n");
            of_group.push(format!("{resource}{at}/{resource}={}", flavor.quota));
        }
        quotas.push(of_group.join(" "));
    }
    let requests: String = asked.iter().zip(RESOURCES).map(|(asked, name)| format!(" {name}={asked}")).collect();
    text + &format!("queue q {}\npending q/w{requests}\nplan\n", quotas.join(" | "))
}

/// All combinations of flavors, with one flavor of each group.
fn combinations(groups: &[Vec<Flavor>]) -> Vec<Vec<usize>> {
    groups.iter().fold(vec![vec![]], |begun, group| {
        let longer = |begun: Vec<usize>| (0..group.len()).map(move |at| [begun.clone(), vec![at]].concat());
        begun.into_iter().flat_map(longer).collect()
    })
}

/// Whether a node can have the labels of all flavors of a combination.
fn are_of_one_node(groups: &[Vec<Flavor>], combination: &[usize]) -> bool {
    let mut node: BTreeMap<&str, u64> = BTreeMap::new();
    let labels = groups.iter().zip(combination).flat_map(|(group, at)| &group[*at].labels);
    labels.into_iter().all(|(key, value)| *node.entry(key).or_insert(*value) == *value)
}

#[test]
fn pods_get_flavors_of_one_node_wherever_such_flavors_fit() {
    let mut admitted = 0;
    for seed in seeds() {
        let _named = Named(seed);
        let mut dice = Dice::new(seed);
        let groups = random_groups(&mut dice);
        let asked: Vec<u64> = groups.iter().map(|_| 1 + dice.below(2)).collect();
        let mut scene = Scene::new(Options::default());
        scene.run(&commands(&groups, &asked));
        let fits = |combination: &Vec<usize>| {
            let mut quotas = groups.iter().zip(combination).zip(&asked);
            quotas.all(|((group, at), asked)| group[*at].quota >= *asked) && are_of_one_node(&groups, combination)
        };
        let right: Vec<Vec<usize>> = combinations(&groups).into_iter().filter(fits).collect();
        let given: Option<Vec<usize>> = scene.out.lines().find(|line| line.starts_with("admit w ")).map(|line| {
            let flavor = |resource: &str| {
                let given = line
                    .split(' ')
                    .find_map(|word| word.strip_suffix(&format!("/{resource}={}", asked_of(&asked, resource))));
                given
                    .and_then(|name| name.strip_prefix(resource))
                    .and_then(|at| at.parse().ok())
                    .unwrap_or_else(|| panic!("{line}"))
            };
            RESOURCES.iter().take(groups.len()).map(|resource| flavor(resource)).collect()
        });
        match given {
            Some(given) => {
                admitted += 1;
                assert!(right.contains(&given), "{given:?} is none of {right:?}\n{}", scene.out);
            }
            None => assert!(right.is_empty(), "it waits, and {right:?} would do\n{}", scene.out),
        }
    }
    assert!(admitted > 0, "no pod was ever admitted");
}

fn asked_of(asked: &[u64], resource: &str) -> u64 {
    asked.iter().zip(RESOURCES).find(|(_, name)| *name == resource).map_or(0, |(asked, _)| *asked)
}
