//! Where a schema comes back to itself.

use std::iter::successors;

use super::{
    super::limits::{NESTED_REFERENCES, Reason},
    Edge, Graph,
};

impl Graph<'_> {
    /// One subschema that asks again, in a schema that is in itself, does so at each level of a value. Of several, one inside the other,
    /// each asks all others again.
    pub(super) fn check_hidden(&self, components: &[usize]) -> Result<(), Reason> {
        let mut hidden = vec![0; self.nodes.len()];
        for (from, node) in self.nodes.iter().enumerate() {
            let component = components[from];
            let mut all = node.edges.iter();
            if node.asks_again && all.any(|(to, _)| components[*to] == component) {
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

    /// How many subschemas are one inside the other at the most, references followed. Of those that come back to each other as many
    /// count as a compiler goes down before it begins anew.
    pub(super) fn levels(&self, components: &[usize]) -> usize {
        let mut outer = vec![None; self.nodes.len()];
        for (from, node) in self.nodes.iter().enumerate() {
            for &(to, edge) in &node.edges {
                if edge != Edge::Reference && components[from] == components[to] {
                    outer[to] = Some(from);
                }
            }
        }
        let written = |node: &usize| successors(Some(*node), |node| outer[*node]).count();
        let mut by_component: Vec<usize> = (0..self.nodes.len()).collect();
        by_component.sort_unstable_by_key(|node| components[*node]);
        let mut levels = vec![0; self.nodes.len()];
        for members in by_component.chunk_by(|a, b| components[*a] == components[*b]) {
            let edges = members.iter().flat_map(|from| &self.nodes[*from].edges);
            let below = edges.map(|(to, _)| levels[components[*to]]).max();
            let written = members.iter().map(written).max().unwrap_or(0);
            let own = members.len().min(written * NESTED_REFERENCES);
            levels[components[members[0]]] = below.unwrap_or(0) + own;
        }
        levels.into_iter().max().unwrap_or(1)
    }

    /// The component of each node: nodes that come back to each other have the same one. What a node refers to has a lower number, or
    /// its own. Tarjan's algorithm, with its stack on the heap.
    pub(super) fn components(&self) -> Vec<usize> {
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
    pub(super) fn order(&self, components: &[usize]) -> Result<Vec<usize>, Reason> {
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
                if !edge.is_same_value() && components[node] == components[to] || ended[to] {
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
