//! What a schema can cost, found out before a compiler sees it.
//!
//! A schema of 2 KiB can have a stack overflow, or a second of work, in it. So its subschemas and the references among them are
//! made a graph of, without recursion, and the graph is measured.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

use super::{
    limits::{
        FANCY, MAX_BYTES, MAX_CHAIN, MAX_EDGES, MAX_LEVELS, MAX_PATTERNS, MAX_WEIGHT, Reason,
    },
    names::Names,
    patterns::Engine,
};
use crate::answer::json_bytes;

/// A schema's subschemas, as far as they are used.
pub(super) struct Graph<'s> {
    nodes: Vec<Node>,
    found: HashMap<*const Value, usize>,
    edges: usize,
    /// The regular expressions in them.
    pub(super) patterns: BTreeSet<&'s str>,
    /// The names that they have for properties.
    pub(super) names: BTreeSet<&'s str>,
    copied: u64,
    has_alternatives: bool,
}

/// A subschema.
#[derive(Default)]
struct Node {
    /// What looking at one value costs, without its subschemas and patterns.
    own: u64,
    patterns: u64,
    /// Whether the subschemas that look at the same value are asked twice: once more for what they have evaluated.
    asks_twice: bool,
    edges: Vec<(usize, Edge)>,
}

/// Which values a subschema looks at.
#[derive(Clone, Copy, PartialEq)]
enum Edge {
    /// The value itself.
    Same,
    /// A part of the value, which no other subschema of this kind looks at.
    Part,
    /// Parts of the value, beside others.
    Parts,
}

/// Adds up numbers of a node's subschemas.
struct Sum {
    times: u64,
    same: u64,
    part: u64,
    parts: u64,
}

impl Sum {
    fn of(node: &Node) -> Self {
        Self {
            times: if node.asks_twice { 2 } else { 1 },
            same: 0,
            part: 0,
            parts: 0,
        }
    }

    fn add(&mut self, edge: Edge, n: u64) {
        match edge {
            Edge::Same => self.same = self.same.saturating_add(n),
            Edge::Part => self.part = self.part.max(n),
            Edge::Parts => self.parts = self.parts.saturating_add(n),
        }
    }

    fn total(&self, own: u64) -> u64 {
        let same = self.same.saturating_mul(self.times);
        own.saturating_add(same)
            .saturating_add(self.part)
            .saturating_add(self.parts)
    }
}

/// What a schema can cost at the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    /// How many steps it takes to look at one value.
    pub(super) weight: u64,
    /// How much of the schema one error may be, in bytes of JSON.
    pub(super) copied: u64,
    /// How many patterns look at one text.
    pub(super) patterns: u64,
    /// Whether an error may have those of alternatives in it.
    pub(super) has_alternatives: bool,
    /// For a schema that is in itself.
    pub(super) recursion: Option<Recursion>,
}

/// How a schema comes back to itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Recursion {
    /// How many levels of subschemas look at one value, one inside the other.
    pub(super) chain: usize,
    /// How often one part of a value is given to the schema again: so many times as much is looked at with each level, where
    /// results are not remembered.
    pub(super) fan: u64,
}

const LISTS: &[(&str, Edge)] = &[
    ("allOf", Edge::Same),
    ("anyOf", Edge::Same),
    ("oneOf", Edge::Same),
    ("prefixItems", Edge::Part),
    ("items", Edge::Part),
];

const MAPS: &[(&str, Edge)] = &[
    ("properties", Edge::Part),
    ("patternProperties", Edge::Parts),
    ("dependentSchemas", Edge::Same),
    ("dependencies", Edge::Same),
];

const SINGLE: &[(&str, Edge)] = &[
    ("not", Edge::Same),
    ("if", Edge::Same),
    ("then", Edge::Same),
    ("else", Edge::Same),
    ("items", Edge::Part),
    ("additionalItems", Edge::Part),
    ("additionalProperties", Edge::Part),
    ("contains", Edge::Parts),
    ("propertyNames", Edge::Parts),
    ("unevaluatedItems", Edge::Parts),
    ("unevaluatedProperties", Edge::Parts),
];

/// What the compiler's errors have a copy of.
const COPIED: [&str; 5] = ["const", "enum", "not", "pattern", "format"];

const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

impl<'s> Graph<'s> {
    /// The graph of a schema that is not nested too deeply.
    pub(super) fn new(schema: &'s Value) -> Result<Self, Reason> {
        let names = Names::new(schema);
        let mut graph = Self {
            nodes: Vec::new(),
            found: HashMap::new(),
            edges: 0,
            patterns: BTreeSet::new(),
            names: BTreeSet::new(),
            copied: 0,
            has_alternatives: false,
        };
        let mut rest = Vec::new();
        graph.node(schema, &mut rest);
        while let Some((node, schema)) = rest.pop() {
            graph.look_at(node, schema, &names, &mut rest)?;
        }
        Ok(graph)
    }

    /// The node of a subschema, and a place in the `rest` to be looked at if it is new.
    fn node(
        &mut self,
        schema: &'s Value,
        rest: &mut Vec<(usize, &'s Map<String, Value>)>,
    ) -> usize {
        let next = self.nodes.len();
        let node = *self.found.entry(schema).or_insert(next);
        if node == next {
            self.nodes.push(Node {
                own: 1,
                ..Node::default()
            });
            if let Value::Object(map) = schema {
                rest.push((node, map));
            }
        }
        node
    }

    fn look_at(
        &mut self,
        node: usize,
        schema: &'s Map<String, Value>,
        names: &Names<'s>,
        rest: &mut Vec<(usize, &'s Map<String, Value>)>,
    ) -> Result<(), Reason> {
        let mut inner: Vec<(&'s Value, Edge)> = Vec::new();
        for (keyword, edge) in LISTS {
            if let Some(Value::Array(list)) = schema.get(*keyword) {
                inner.extend(list.iter().map(|schema| (schema, *edge)));
            }
        }
        for (keyword, edge) in MAPS {
            if let Some(Value::Object(map)) = schema.get(*keyword) {
                // A dependency may be a list of names.
                let schemas = map.values().filter(|schema| !schema.is_array());
                inner.extend(schemas.map(|schema| (schema, *edge)));
            }
        }
        for (keyword, edge) in SINGLE {
            if let Some(schema) = schema.get(*keyword).filter(|schema| !schema.is_array()) {
                inner.push((schema, *edge));
            }
        }
        for keyword in REFERENCES {
            if let Some(Value::String(reference)) = schema.get(keyword) {
                let targets = names.targets(reference)?;
                inner.extend(targets.into_iter().map(|schema| (schema, Edge::Same)));
            }
        }
        self.edges += inner.len();
        if self.edges > MAX_EDGES {
            return Err("has too many references".into());
        }
        for (schema, edge) in inner {
            let to = self.node(schema, rest);
            self.nodes[node].edges.push((to, edge));
        }
        self.note(node, schema);
        match self.patterns.len() > MAX_PATTERNS {
            true => Err(format!("has more than {MAX_PATTERNS} different patterns").into()),
            false => Ok(()),
        }
    }

    /// What the node has beside subschemas.
    fn note(&mut self, node: usize, schema: &'s Map<String, Value>) {
        let map = |keyword| schema.get(keyword).and_then(Value::as_object);
        let list = |keyword| schema.get(keyword).and_then(Value::as_array);
        let keys = |keyword| {
            map(keyword)
                .into_iter()
                .flat_map(Map::keys)
                .map(String::as_str)
        };
        self.names.extend(keys("properties"));
        let required = list("required").into_iter().flatten();
        self.names.extend(required.filter_map(Value::as_str));
        for keyword in ["dependencies", "dependentRequired"] {
            for (key, names) in map(keyword).into_iter().flatten() {
                self.names.insert(key);
                let names = names.as_array().into_iter().flatten();
                self.names.extend(names.filter_map(Value::as_str));
            }
        }

        let copies = COPIED.iter().filter_map(|keyword| schema.get(*keyword));
        for value in copies {
            let bytes = json_bytes(value, MAX_BYTES).unwrap_or(MAX_BYTES);
            self.copied = self.copied.max(bytes);
        }
        let alternatives = ["anyOf", "oneOf"];
        self.has_alternatives |= alternatives
            .iter()
            .any(|keyword| schema.contains_key(*keyword));

        let before = (self.nodes[node].own, self.nodes[node].patterns);
        let mut patterns: Vec<&'s str> = keys("patternProperties").collect();
        patterns.extend(schema.get("pattern").and_then(Value::as_str));
        let many = list("enum").map_or(0, Vec::len)
            + list("required").map_or(0, Vec::len)
            + map("properties").map_or(0, Map::len);
        let hidden = ["unevaluatedProperties", "unevaluatedItems"];
        let node = &mut self.nodes[node];
        node.own = before.0 + many as u64 / 8;
        node.patterns = before.1 + patterns.len() as u64;
        node.asks_twice = hidden.iter().any(|keyword| schema.contains_key(*keyword));
        self.patterns.extend(patterns);
    }

    /// What the schema costs with this engine for its patterns.
    pub(super) fn cost(&self, engine: Engine) -> Result<Cost, Reason> {
        let components = self.components();
        let order = self.order(&components)?;
        let per_pattern = match engine {
            Engine::Linear => 1,
            Engine::Fancy => FANCY,
        };
        let all = self.nodes.len();
        let (mut weights, mut fans, mut chains) = (vec![1; all], vec![0; all], vec![1; all]);
        let mut patterns = vec![0; all];
        for from in order {
            let node = &self.nodes[from];
            let (mut weight, mut fan) = (Sum::of(node), Sum::of(node));
            let mut pattern = Sum::of(node);
            for &(to, edge) in &node.edges {
                // A schema that comes back to itself further in is asked once for each value.
                let again = edge != Edge::Same && components[from] == components[to];
                weight.add(edge, if again { 1 } else { weights[to] });
                pattern.add(edge, if again { 0 } else { patterns[to] });
                // What is further in, and does not come back, has a fan of its own.
                match edge {
                    Edge::Same => fan.add(edge, fans[to]),
                    _ => fan.add(edge, u64::from(again)),
                }
                if edge == Edge::Same {
                    chains[from] = chains[from].max(chains[to] + 1);
                }
            }
            weights[from] = weight.total(node.own + node.patterns * per_pattern);
            fans[from] = fan.total(0);
            patterns[from] = pattern.total(node.patterns);
        }
        let chain = chains.into_iter().max().unwrap_or(1);
        let weight = weights.into_iter().max().unwrap_or(1);
        let fan = fans.into_iter().max().unwrap_or(0);
        if weight > MAX_WEIGHT {
            let reason = format!("has more than {MAX_WEIGHT} subschemas that look at one value");
            return Err(reason.into());
        }
        if self.levels(&components) > MAX_LEVELS || fan > 0 && chain > MAX_CHAIN {
            return Err("has references that are nested too deeply".into());
        }
        self.check_hidden(&components)?;
        let recursion = (fan > 0).then_some(Recursion { chain, fan });
        Ok(Cost {
            weight,
            copied: self.copied,
            patterns: patterns.into_iter().max().unwrap_or(0),
            has_alternatives: self.has_alternatives,
            recursion,
        })
    }

    /// One subschema that asks twice, in a schema that is in itself, asks twice at each level of a value. Of several, one inside the other,
    /// each asks all others again.
    fn check_hidden(&self, components: &[usize]) -> Result<(), Reason> {
        let mut hidden = vec![0; self.nodes.len()];
        for (from, node) in self.nodes.iter().enumerate() {
            let component = components[from];
            let mut all = node.edges.iter();
            if node.asks_twice && all.any(|(to, _)| components[*to] == component) {
                hidden[component] += 1;
            }
        }
        match hidden.iter().any(|hidden| *hidden > 1) {
            true => {
                let reason =
                    "refers to itself inside several `unevaluatedProperties` or `unevaluatedItems`";
                Err(reason.into())
            }
            false => Ok(()),
        }
    }

    /// How many subschemas are one inside the other at the most, references followed: those that come back to each other all count.
    fn levels(&self, components: &[usize]) -> usize {
        let mut by_component: Vec<usize> = (0..self.nodes.len()).collect();
        by_component.sort_unstable_by_key(|node| components[*node]);
        let mut levels = vec![0; self.nodes.len()];
        for members in by_component.chunk_by(|a, b| components[*a] == components[*b]) {
            let edges = members.iter().flat_map(|from| &self.nodes[*from].edges);
            let below = edges.map(|(to, _)| levels[components[*to]]).max();
            levels[components[members[0]]] = below.unwrap_or(0) + members.len();
        }
        levels.into_iter().max().unwrap_or(1)
    }

    /// The component of each node: nodes that come back to each other have the same one. What a node refers to has a lower number, or
    /// its own. Tarjan's algorithm, with its stack on the heap.
    fn components(&self) -> Vec<usize> {
        const NEW: usize = usize::MAX;
        let all = self.nodes.len();
        let (mut index, mut low, mut component) = (vec![NEW; all], vec![0; all], vec![NEW; all]);
        let (mut open, mut path) = (Vec::new(), vec![(0, 0)]);
        let (mut seen, mut complete) = (0, 0);
        while let Some((node, next)) = path.last_mut() {
            let node = *node;
            if *next == 0 {
                (index[node], low[node]) = (seen, seen);
                seen += 1;
                open.push(node);
            }
            if let Some((to, _)) = self.nodes[node].edges.get(*next) {
                *next += 1;
                if index[*to] == NEW {
                    path.push((*to, 0));
                } else if component[*to] == NEW {
                    low[node] = low[node].min(index[*to]);
                }
                continue;
            }
            path.pop();
            if let Some((parent, _)) = path.last() {
                low[*parent] = low[*parent].min(low[node]);
            }
            if low[node] == index[node] {
                while let Some(member) = open.pop() {
                    component[member] = complete;
                    if member == node {
                        break;
                    }
                }
                complete += 1;
            }
        }
        component
    }

    /// The nodes, each behind those that its weight depends on.
    fn order(&self, components: &[usize]) -> Result<Vec<usize>, Reason> {
        let all = self.nodes.len();
        let (mut begun, mut ended) = (vec![false; all], vec![false; all]);
        let (mut order, mut path) = (Vec::with_capacity(all), Vec::new());
        for root in 0..all {
            if begun[root] {
                continue;
            }
            begun[root] = true;
            path.push((root, 0));
            while let Some((node, next)) = path.last_mut() {
                let node = *node;
                let Some(&(to, edge)) = self.nodes[node].edges.get(*next) else {
                    ended[node] = true;
                    order.push(node);
                    path.pop();
                    continue;
                };
                *next += 1;
                if edge != Edge::Same && components[node] == components[to] || ended[to] {
                    continue;
                }
                if begun[to] {
                    return Err("refers to itself for one and the same value".into());
                }
                begun[to] = true;
                path.push((to, 0));
            }
        }
        Ok(order)
    }
}
