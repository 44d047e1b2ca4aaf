//! What a schema can cost, found out before a compiler sees it.
//!
//! A schema of 2 KiB can have a stack overflow, or a second of work, in it. So its subschemas and the references among them are
//! made a graph of, without recursion, and the graph is measured.

mod cycles;

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

use super::{
    limits::{
        FANCY, FRACTION, MAX_BYTES, MAX_CHAIN, MAX_EDGES, MAX_LEVELS, MAX_OUTCOMES, MAX_PATTERNS,
        MAX_SUBSCHEMAS, RUNS, Reason, UNIQUE,
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
    compares_items: bool,
}

/// A subschema.
#[derive(Default)]
struct Node {
    /// What looking at one value costs, without its subschemas and patterns; and what comes to that for some values.
    own: u64,
    costly: u64,
    patterns: u64,
    /// Of an `if`, and of `dependentSchemas`.
    outcomes: u64,
    /// Whether subschemas are asked again, for what they have evaluated.
    asks_again: bool,
    edges: Vec<(usize, Edge)>,
}

/// Which values a subschema looks at.
#[derive(Clone, Copy, PartialEq)]
enum Edge {
    /// The value itself.
    Same,
    /// The value itself, from another place of the schema.
    Reference,
    /// The value itself: it decides which others do.
    If,
    /// A part of the value, which no other subschema of this kind looks at.
    Part,
    /// Parts of the value, beside others.
    Parts,
    /// The same, and again for what is evaluated.
    Evaluated,
}

impl Edge {
    fn is_same_value(self) -> bool {
        matches!(self, Self::Same | Self::Reference | Self::If)
    }
}

/// How often a subschema is asked where [`Node::asks_again`]: by its keyword, for whether what it has evaluated counts, and
/// for what that is.
const ASKED: u64 = 3;

/// Adds up numbers of a node's subschemas.
struct Sum {
    times: u64,
    repeated: u64,
    part: u64,
    parts: u64,
}

impl Sum {
    fn of(node: &Node) -> Self {
        Self {
            times: if node.asks_again { ASKED } else { 1 },
            repeated: 0,
            part: 0,
            parts: 0,
        }
    }

    fn add(&mut self, edge: Edge, n: u64) {
        match edge {
            Edge::Part => self.part = self.part.max(n),
            Edge::Parts => self.parts = self.parts.saturating_add(n),
            _ => self.repeated = self.repeated.saturating_add(n),
        }
    }

    fn total(&self, own: u64) -> u64 {
        let repeated = self.repeated.saturating_mul(self.times);
        own.saturating_add(repeated)
            .saturating_add(self.part)
            .saturating_add(self.parts)
    }
}

/// What a node costs with all its subschemas.
#[derive(Clone, Copy, Default)]
struct Total {
    /// Subschemas that look at one value, and what they cost.
    subschemas: u64,
    weight: u64,
    fan: u64,
    chain: usize,
    patterns: u64,
    /// The outcomes of all `if`s for the same value, and of `dependentSchemas`; and what the `if`s cost.
    outcomes: u64,
    ifs: u64,
}

/// What a schema can cost at the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    /// How many steps it takes to look at one value.
    pub(super) weight: u64,
    /// How often all are taken.
    pub(super) runs: u64,
    /// How much of the schema one error may be, in bytes of JSON.
    pub(super) copied: u64,
    /// How many patterns look at one text.
    pub(super) patterns: u64,
    /// Whether an error may have those of alternatives in it.
    pub(super) has_alternatives: bool,
    /// Whether items are compared with each other.
    pub(super) compares_items: bool,
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
    ("if", Edge::If),
    ("then", Edge::Same),
    ("else", Edge::Same),
    ("items", Edge::Part),
    ("additionalItems", Edge::Part),
    ("additionalProperties", Edge::Part),
    ("contains", Edge::Evaluated),
    ("propertyNames", Edge::Parts),
    ("unevaluatedItems", Edge::Evaluated),
    ("unevaluatedProperties", Edge::Evaluated),
];

/// What the compiler's errors have a copy of.
const COPIED: [&str; 4] = ["const", "enum", "not", "pattern"];

pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", RECURSIVE];
const RECURSIVE: &str = "$recursiveRef";

impl<'s> Graph<'s> {
    /// The graph of a schema that is not nested too deeply.
    pub(super) fn new(schema: &'s Value) -> Result<Self, Reason> {
        let names = Names::new(schema)?;
        let mut graph = Self {
            nodes: Vec::new(),
            found: HashMap::new(),
            edges: 0,
            patterns: BTreeSet::new(),
            names: BTreeSet::new(),
            copied: 0,
            has_alternatives: false,
            compares_items: false,
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
                let targets = targets.into_iter();
                inner.extend(targets.map(|schema| (schema, Edge::Reference)));
            }
        }
        // A compiler takes whatever it says for this one.
        if schema.get(RECURSIVE).is_some_and(|to| to != "#") {
            return Err("has a `$recursiveRef` that is not `#`".into());
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

        self.compares_items |= compares_items(schema);
        let mut patterns: Vec<&'s str> = keys("patternProperties").collect();
        patterns.extend(schema.get("pattern").and_then(Value::as_str));
        let node = &mut self.nodes[node];
        node.own += own(schema);
        node.costly = costly(schema);
        node.patterns += patterns.len() as u64;
        let dependents = map("dependentSchemas").map_or(0, Map::len);
        node.outcomes = 2 * u64::from(schema.contains_key("if")) + dependents as u64;
        let hidden = ["unevaluatedProperties", "unevaluatedItems"];
        node.asks_again = hidden.iter().any(|keyword| schema.contains_key(*keyword));
        self.patterns.extend(patterns);
    }

    /// What the schema costs with this engine for its patterns.
    pub(super) fn cost(&self, engine: Engine) -> Result<Cost, Reason> {
        let components = self.components();
        let order = self.order(&components)?;
        let (per_pattern, runs) = match engine {
            Engine::Linear => (1, 1),
            Engine::Fancy => (FANCY, RUNS),
        };
        let mut totals = vec![Total::default(); self.nodes.len()];
        for from in order {
            totals[from] = self.total(from, &totals, &components, per_pattern);
        }
        let most = |of: fn(&Total) -> u64| totals.iter().map(of).max().unwrap_or(0);
        let (weight, fan) = (most(|t| t.weight), most(|t| t.fan));
        let chain = totals.iter().map(|t| t.chain).max().unwrap_or(1);
        if most(|t| t.subschemas) > MAX_SUBSCHEMAS {
            let reason =
                format!("has more than {MAX_SUBSCHEMAS} subschemas that look at one value");
            return Err(reason.into());
        }
        if self.levels(&components) > MAX_LEVELS || fan > 0 && chain > MAX_CHAIN {
            return Err("has references that are nested too deeply".into());
        }
        self.check_hidden(&components)?;
        Ok(Cost {
            weight,
            runs,
            copied: self.copied,
            patterns: most(|t| t.patterns),
            has_alternatives: self.has_alternatives,
            compares_items: self.compares_items,
            recursion: (fan > 0).then_some(Recursion { chain, fan }),
        })
    }

    /// What a node costs, if `totals` has those of its subschemas.
    fn total(
        &self,
        from: usize,
        totals: &[Total],
        components: &[usize],
        per_pattern: u64,
    ) -> Total {
        let node = &self.nodes[from];
        let [mut subschemas, mut weight, mut fan, mut patterns] = [(); 4].map(|()| Sum::of(node));
        let (mut chain, mut outcomes, mut ifs) = (1, node.outcomes, 0_u64);
        for &(to, edge) in &node.edges {
            let inner = totals[to];
            if edge.is_same_value() {
                subschemas.add(edge, inner.subschemas);
                weight.add(edge, inner.weight);
                patterns.add(edge, inner.patterns);
                fan.add(edge, inner.fan);
                chain = chain.max(inner.chain + 1);
                outcomes = outcomes.saturating_add(inner.outcomes);
                ifs = ifs.saturating_add(inner.ifs);
                if edge == Edge::If {
                    ifs = ifs.saturating_add(inner.weight);
                }
                continue;
            }
            // A schema that comes back to itself further in is asked once for each value. What does not come back has a fan of
            // its own.
            let again = components[from] == components[to];
            subschemas.add(edge, if again { 1 } else { inner.subschemas });
            weight.add(edge, if again { 1 } else { inner.weight });
            patterns.add(edge, if again { 0 } else { inner.patterns });
            fan.add(edge, u64::from(again));
        }
        // For each outcome all `if`s before it are asked again.
        let asked = if node.asks_again {
            outcomes.min(MAX_OUTCOMES)
        } else {
            0
        };
        let own = node.own + node.costly + node.patterns * per_pattern;
        Total {
            subschemas: subschemas.total(node.own),
            weight: weight.total(own.saturating_add(ifs.saturating_mul(asked))),
            fan: fan.total(0),
            chain,
            patterns: patterns.total(node.patterns),
            outcomes,
            ifs,
        }
    }
}

/// What looking at one value costs beside subschemas and patterns, in subschemas.
fn own(schema: &Map<String, Value>) -> u64 {
    let length = |keyword| match schema.get(keyword) {
        Some(Value::Array(list)) => list.len() as u64,
        Some(Value::Object(map)) => map.len() as u64,
        _ => 0,
    };
    let of_names = |keyword| {
        let map = schema.get(keyword).and_then(Value::as_object);
        let lists = map.into_iter().flat_map(Map::values);
        let names: usize = lists.filter_map(Value::as_array).map(Vec::len).sum();
        length(keyword) + names as u64
    };
    let options = schema.get("enum").and_then(Value::as_array);
    // Texts are looked up, all else is compared.
    let compared = options.filter(|all| !all.iter().all(|v| v.is_string() || v.is_null()));
    (length("required") + length("properties")) / 8
        + compared.map_or(0, Vec::len) as u64 / 2
        + of_names("dependentRequired")
        + of_names("dependencies")
}

/// What some values cost besides.
fn costly(schema: &Map<String, Value>) -> u64 {
    let is_fraction = |n: &Value| n.as_u64().is_none();
    let fraction = schema.get("multipleOf").is_some_and(is_fraction);
    FRACTION * u64::from(fraction) + UNIQUE * u64::from(compares_items(schema))
}

fn compares_items(schema: &Map<String, Value>) -> bool {
    schema.get("uniqueItems") == Some(&Value::Bool(true))
}
