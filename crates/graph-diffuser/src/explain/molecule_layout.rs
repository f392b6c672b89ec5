//! A molecule on paper as chemists draw it.
//!
//! Rings are regular polygons that share their common bonds, chains turn by 120 degrees to and fro, and
//! what still lies on something else is turned over around a single bond. Cages that no polygons can draw are
//! bent, and where even that fails distances decide.

use std::collections::BTreeSet;
use std::f64::consts::{PI, TAU};

use super::layout::{Point, apart, by_stress, distances, neighbors};

/// Larger rings are drawn as chains would be.
const LARGEST_RING: usize = 24;
/// Atoms without a bond that are closer than this lie on each other.
const TOO_CLOSE: f64 = 0.45;
/// Atoms should be so far from each other, if that can be had.
const COMFORTABLE: f64 = 0.95;

/// Places of a connected molecule; `lines` says for each edge how many lines its bond has.
pub(super) fn places(nodes: usize, edges: &[[u32; 2]], lines: &[u8]) -> Vec<Point> {
    if nodes < 2 {
        return vec![[0.0; 2]; nodes];
    }
    let neighbors = neighbors(nodes, edges);
    let rings = rings(&neighbors);
    let systems = systems(nodes, &rings);
    let mut drawing = Drawing {
        places: vec![None; nodes],
        neighbors: &neighbors,
        straight: straight(nodes, edges, lines),
    };
    drawing.draw(&systems);
    let mut places: Vec<Point> =
        drawing.places.into_iter().map(Option::unwrap_or_default).collect();
    turn_over(&mut places, &neighbors, &rings);
    let crowded = (0..nodes)
        .any(|node| (0..node).any(|other| apart(places[node], places[other]) < TOO_CLOSE));
    if crowded { by_stress(nodes, edges, Some(nudged(&places))) } else { places }
}

/// Atoms with a triple bond or two double bonds: their neighbours stand in a line.
fn straight(nodes: usize, edges: &[[u32; 2]], lines: &[u8]) -> Vec<bool> {
    let mut double: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); nodes];
    let mut triple = vec![false; nodes];
    for (&[source, target], &lines) in edges.iter().zip(lines) {
        for (node, other) in [(source, target), (target, source)] {
            match lines {
                2 => drop(double[node as usize].insert(other)),
                3 => triple[node as usize] = true,
                _ => {}
            }
        }
    }
    (0..nodes).map(|node| triple[node] || double[node].len() > 1).collect()
}

/// Equal places pulled apart, by a spiral.
fn nudged(places: &[Point]) -> Vec<Point> {
    let nudge = |(node, place): (usize, &Point)| {
        let (sine, cosine) = (node as f64 * 2.4).sin_cos();
        [place[0] + 0.05 * cosine, place[1] + 0.05 * sine]
    };
    places.iter().enumerate().map(nudge).collect()
}

/// A smallest set of rings, each as its atoms in order: shortest cycles through each bond, short ones first, as
/// long as they are no sum of those before.
fn rings(neighbors: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let nodes = neighbors.len();
    let bonds: Vec<[usize; 2]> = (0..nodes)
        .flat_map(|node| {
            neighbors[node]
                .iter()
                .filter(move |&&other| node < other)
                .map(move |&other| [node, other])
        })
        .collect();
    let independent = (bonds.len() + 1).saturating_sub(nodes);
    let mut found: BTreeSet<(usize, Vec<usize>)> = BTreeSet::new();
    for &[first, last] in &bonds {
        let mut without = neighbors.to_vec();
        without[first].retain(|&node| node != last);
        without[last].retain(|&node| node != first);
        let distance = distances(first, &without);
        if distance[last] < LARGEST_RING {
            let mut ring = vec![last];
            let mut node = last;
            while node != first {
                let back = without[node]
                    .iter()
                    .copied()
                    .find(|&other| distance[other] + 1 == distance[node]);
                node = back.expect("a way leads back");
                ring.push(node);
            }
            found.insert((ring.len(), canonical(&ring)));
        }
    }
    // Rings as sums of bonds; one that reduces to nothing is made of the others.
    let mut basis: Vec<BTreeSet<[usize; 2]>> = Vec::new();
    let mut rings = Vec::new();
    for (_, ring) in found {
        if rings.len() == independent {
            break;
        }
        let mut rest: BTreeSet<[usize; 2]> = bonds_of(&ring).collect();
        for known in &basis {
            if known.first().is_some_and(|bond| rest.contains(bond)) {
                rest = rest.symmetric_difference(known).copied().collect();
            }
        }
        if !rest.is_empty() {
            basis.push(rest);
            basis.sort(); // by their first bonds
            rings.push(ring);
        }
    }
    rings
}

/// From the smallest atom on, towards its smaller neighbour.
fn canonical(ring: &[usize]) -> Vec<usize> {
    let count = ring.len();
    let start = (0..count).min_by_key(|&place| ring[place]).unwrap_or(0);
    let forward = |step: usize| ring[(start + step) % count];
    let backward = |step: usize| ring[(start + count - step) % count];
    if forward(1) <= backward(1) {
        (0..count).map(forward).collect()
    } else {
        (0..count).map(backward).collect()
    }
}

fn bonds_of(ring: &[usize]) -> impl Iterator<Item = [usize; 2]> {
    let next = ring.iter().cycle().skip(1);
    ring.iter().zip(next).map(|(&left, &right)| [left.min(right), left.max(right)])
}

/// Rings that share atoms, together.
fn systems(nodes: usize, rings: &[Vec<usize>]) -> Vec<Vec<Vec<usize>>> {
    let mut system_of: Vec<usize> = (0..rings.len()).collect();
    for atom in 0..nodes {
        let here: Vec<usize> =
            (0..rings.len()).filter(|&ring| rings[ring].contains(&atom)).collect();
        for pair in here.windows(2) {
            let (old, new) = (system_of[pair[1]], system_of[pair[0]]);
            system_of.iter_mut().filter(|system| **system == old).for_each(|system| *system = new);
        }
    }
    let mut numbers = system_of.clone();
    numbers.sort_unstable();
    numbers.dedup();
    let members = |&number: &usize| {
        let of_system = rings.iter().zip(&system_of).filter(|(_, system)| **system == number);
        of_system.map(|(ring, _)| ring.clone()).collect()
    };
    numbers.iter().map(members).collect()
}

/// Places of one ring system in a frame of its own: polygons that share their common bonds.
fn draw_system(rings: &[Vec<usize>], nodes: usize) -> Vec<Option<Point>> {
    let mut places: Vec<Option<Point>> = vec![None; nodes];
    let shared = |ring: &Vec<usize>| {
        rings
            .iter()
            .filter(|other| *other != ring && other.iter().any(|atom| ring.contains(atom)))
            .count()
    };
    // The ring with most neighbours first, and of those the largest.
    let mut left: Vec<&Vec<usize>> = rings.iter().collect();
    left.sort_by_key(|ring| (usize::MAX - shared(ring), usize::MAX - ring.len()));
    let first = left.remove(0);
    let radius = polygon_radius(first.len());
    for (place, &atom) in first.iter().enumerate() {
        let angle = TAU * place as f64 / first.len() as f64;
        places[atom] = Some([radius * angle.cos(), radius * angle.sin()]);
    }
    while !left.is_empty() {
        let known = |ring: &Vec<usize>| ring.iter().filter(|&&atom| places[atom].is_some()).count();
        // What shares one bond fits a polygon; what shares more is bent around it.
        let rank = |ring: &&Vec<usize>| match known(ring) {
            2 => 0,
            1 => 1,
            0 => 3,
            _ => 2,
        };
        let next = (0..left.len()).min_by_key(|&place| (rank(&left[place]), place)).unwrap_or(0);
        let ring = left.remove(next);
        attach(ring, &mut places);
    }
    places
}

fn polygon_radius(corners: usize) -> f64 {
    0.5 / (PI / corners as f64).sin()
}

/// Adds a ring to what is drawn already.
fn attach(ring: &[usize], places: &mut [Option<Point>]) {
    let count = ring.len();
    let drawn: Vec<Point> = places.iter().flatten().copied().collect();
    let centre = mean(&drawn);
    let known: Vec<usize> = (0..count).filter(|&place| places[ring[place]].is_some()).collect();
    if known.len() == count {
        return;
    }
    if let [only] = known[..] {
        // A spiro atom: the new polygon stands on the other side of it.
        let corner = places[ring[only]].unwrap_or_default();
        let away = (corner[1] - centre[1]).atan2(corner[0] - centre[0]);
        let radius = polygon_radius(count);
        let middle = [corner[0] + radius * away.cos(), corner[1] + radius * away.sin()];
        for step in 1..count {
            let angle = away + PI + TAU * step as f64 / count as f64;
            places[ring[(only + step) % count]] =
                Some([middle[0] + radius * angle.cos(), middle[1] + radius * angle.sin()]);
        }
        return;
    }
    // Each stretch of new atoms goes from one drawn atom to the next, on an arc away from the rest.
    for (place, &start) in known.iter().enumerate() {
        let end = known[(place + 1) % known.len()];
        let gap = (end + count - start - 1) % count;
        if gap == 0 {
            continue;
        }
        let (from, to) =
            (places[ring[start]].unwrap_or_default(), places[ring[end]].unwrap_or_default());
        for (step, point) in arc(from, to, gap, centre).into_iter().enumerate() {
            places[ring[(start + 1 + step) % count]] = Some(point);
        }
    }
}

fn mean(points: &[Point]) -> Point {
    let count = points.len().max(1) as f64;
    [0, 1].map(|axis| points.iter().map(|point| point[axis]).sum::<f64>() / count)
}

/// So many points between two, one apart from each other on a circle, on the side away from `centre`.
fn arc(from: Point, to: Point, count: usize, centre: Point) -> Vec<Point> {
    let chord = apart(from, to).clamp(1e-3, count as f64 + 0.9);
    // Half the angle that one bond takes: `sin((count + 1) half) / sin(half) = chord`, which falls as half grows.
    let (mut low, mut high) = (1e-6, PI / (count + 1) as f64);
    for _ in 0..60 {
        let half = f64::midpoint(low, high);
        if (half * (count + 1) as f64).sin() / half.sin() > chord {
            low = half
        } else {
            high = half
        }
    }
    let half = f64::midpoint(low, high);
    let radius = 0.5 / half.sin();
    let middle = [f64::midpoint(from[0], to[0]), f64::midpoint(from[1], to[1])];
    let along = [
        (to[0] - from[0]) / apart(from, to).max(1e-9),
        (to[1] - from[1]) / apart(from, to).max(1e-9),
    ];
    let mut side = [-along[1], along[0]];
    if (centre[0] - middle[0]) * side[0] + (centre[1] - middle[1]) * side[1] > 0.0 {
        side = side.map(|part| -part);
    }
    let spread = half * (count + 1) as f64;
    // The circle's centre lies `radius · cos(spread)` below the chord.
    let below = radius * spread.cos();
    (1..=count)
        .map(|step| {
            let angle = -spread + 2.0 * half * step as f64;
            let (x, y) = (radius * angle.sin(), radius * angle.cos() - below);
            [middle[0] + x * along[0] + y * side[0], middle[1] + x * along[1] + y * side[1]]
        })
        .collect()
}

struct Drawing<'a> {
    places: Vec<Option<Point>>,
    neighbors: &'a [Vec<usize>],
    straight: Vec<bool>,
}

impl Drawing<'_> {
    /// Begins with the largest ring system, or the end of the longest chain, and goes outward bond by bond.
    fn draw(&mut self, systems: &[Vec<Vec<usize>>]) {
        let nodes = self.neighbors.len();
        let frames: Vec<Vec<Option<Point>>> =
            systems.iter().map(|rings| draw_system(rings, nodes)).collect();
        let frame_of: Vec<Option<usize>> =
            (0..nodes).map(|node| frames.iter().position(|frame| frame[node].is_some())).collect();
        let size = |frame: &Vec<Option<Point>>| frame.iter().flatten().count();
        let start =
            (0..frames.len()).max_by_key(|&frame| (size(&frames[frame]), usize::MAX - frame));
        let mut queue = std::collections::VecDeque::new();
        if let Some(start) = start {
            self.places.clone_from(&frames[start]);
            queue.extend((0..nodes).filter(|&node| frames[start][node].is_some()));
        } else {
            let distance = distances(0, self.neighbors);
            let end =
                (0..nodes).max_by_key(|&node| (distance[node], usize::MAX - node)).unwrap_or(0);
            self.places[end] = Some([0.0; 2]);
            queue.push_back(end);
        }
        while let Some(node) = queue.pop_front() {
            let mut waiting: Vec<usize> = self.neighbors[node]
                .iter()
                .copied()
                .filter(|&other| self.places[other].is_none())
                .collect();
            // Large branches get their direction first.
            waiting.sort_by_key(|&other| (usize::MAX - self.beyond(other, node), other));
            for (other, angle) in waiting.iter().zip(self.directions(node, waiting.len())) {
                let here = self.places[node].unwrap_or_default();
                let there = [here[0] + angle.cos(), here[1] + angle.sin()];
                if let Some(frame) = frame_of[*other] {
                    self.set_frame(&frames[frame], *other, there, angle + PI);
                    queue.extend((0..nodes).filter(|&atom| frames[frame][atom].is_some()));
                } else {
                    self.places[*other] = Some(there);
                    queue.push_back(*other);
                }
            }
        }
    }

    /// Atoms that are reached from `node` without going through `from`.
    fn beyond(&self, node: usize, from: usize) -> usize {
        let mut seen = BTreeSet::from([node, from]);
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            stack.extend(self.neighbors[node].iter().copied().filter(|&other| seen.insert(other)));
        }
        seen.len()
    }

    /// Directions for so many new bonds of an atom.
    fn directions(&self, node: usize, count: usize) -> Vec<f64> {
        let here = self.places[node].unwrap_or_default();
        let taken = bond_angles(node, &self.places, self.neighbors);
        match (&taken[..], count) {
            (_, 0) => vec![],
            ([], _) => (0..count).map(|bond| TAU * bond as f64 / count as f64 + PI / 6.0).collect(),
            ([back], 1) if self.straight[node] => vec![back + PI],
            ([back], 1) => {
                // To the roomier side; of equal ones to the side that the chain did not turn to before.
                let third = TAU / 3.0;
                let room = |angle: f64| {
                    let there = [here[0] + angle.cos(), here[1] + angle.sin()];
                    let further = [there[0] + 0.5 * angle.cos(), there[1] + 0.5 * angle.sin()];
                    let near = self.places.iter().flatten().filter(|place| **place != here);
                    near.map(|place| 1.0 / apart(*place, further).max(0.1).powi(2)).sum::<f64>()
                };
                let (left, right) = (back + third, back - third);
                vec![if room(left) <= room(right) { left } else { right }]
            }
            ([back], _) => {
                (1..=count).map(|bond| back + TAU * bond as f64 / (count + 1) as f64).collect()
            }
            _ => {
                // Spread over the widest gap.
                let (start, width) = widest_gap(&taken);
                (1..=count).map(|bond| start + width * bond as f64 / (count + 1) as f64).collect()
            }
        }
    }

    /// Sets a ring system down with `atom` at `there` and the bond that leads away from it at `angle`.
    fn set_frame(&mut self, frame: &[Option<Point>], atom: usize, there: Point, angle: f64) {
        let taken = bond_angles(atom, frame, self.neighbors);
        let (start, width) = widest_gap(&taken);
        let turn = angle - (start + width / 2.0);
        let (sine, cosine) = turn.sin_cos();
        let anchor = frame[atom].unwrap_or_default();
        for (node, place) in frame.iter().enumerate() {
            if let Some(place) = place {
                let [x, y] = [place[0] - anchor[0], place[1] - anchor[1]];
                self.places[node] =
                    Some([there[0] + x * cosine - y * sine, there[1] + x * sine + y * cosine]);
            }
        }
    }
}

/// Angles of the bonds from an atom to those that are drawn, from small to large.
fn bond_angles(node: usize, places: &[Option<Point>], neighbors: &[Vec<usize>]) -> Vec<f64> {
    let here = places[node].unwrap_or_default();
    let drawn = neighbors[node].iter().filter_map(|&other| places[other]);
    let mut angles: Vec<f64> =
        drawn.map(|there| (there[1] - here[1]).atan2(there[0] - here[0]).rem_euclid(TAU)).collect();
    angles.sort_by(f64::total_cmp);
    angles
}

/// Where the widest gap between angles begins, and how wide it is.
fn widest_gap(angles: &[f64]) -> (f64, f64) {
    let Some(&first) = angles.first() else { return (0.0, TAU) };
    let next = angles.iter().copied().skip(1).chain([first + TAU]);
    let gaps = angles.iter().copied().zip(next).map(|(angle, next)| (angle, next - angle));
    gaps.fold((first, 0.0), |widest, gap| if gap.1 > widest.1 + 1e-9 { gap } else { widest })
}

/// Turns the smaller side of bonds over where that gives atoms more room.
fn turn_over(places: &mut [Point], neighbors: &[Vec<usize>], rings: &[Vec<usize>]) {
    let in_ring: BTreeSet<[usize; 2]> =
        rings.iter().flat_map(|ring| bonds_of(ring).collect::<Vec<_>>()).collect();
    let nodes = places.len();
    let mut sides: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    for node in 0..nodes {
        for &other in neighbors[node]
            .iter()
            .filter(|&&other| !in_ring.contains(&[node.min(other), node.max(other)]))
        {
            let mut side = BTreeSet::from([node, other]);
            let mut stack = vec![other];
            while let Some(next) = stack.pop() {
                stack.extend(neighbors[next].iter().copied().filter(|&beyond| side.insert(beyond)));
            }
            side.remove(&node);
            if side.len() > 1 && 2 * side.len() <= nodes {
                sides.push((node, other, side.into_iter().collect()));
            }
        }
    }
    let crowding = |places: &[Point], side: &[usize]| {
        let inside: BTreeSet<usize> = side.iter().copied().collect();
        let outside: Vec<usize> = (0..nodes).filter(|node| !inside.contains(node)).collect();
        let pair = |&(node, other): &(usize, usize)| {
            (COMFORTABLE - apart(places[node], places[other])).max(0.0).powi(2)
        };
        let pairs = side.iter().flat_map(|&node| outside.iter().map(move |&other| (node, other)));
        pairs.map(|both| pair(&both)).sum::<f64>()
    };
    for _ in 0..4 {
        let mut better = false;
        for (node, other, side) in &sides {
            let before = crowding(places, side);
            if before < 1e-6 {
                continue;
            }
            let mut turned = places.to_vec();
            let angle =
                (places[*other][1] - places[*node][1]).atan2(places[*other][0] - places[*node][0]);
            let (sine, cosine) = (2.0 * angle).sin_cos();
            for &atom in side {
                let [x, y] =
                    [places[atom][0] - places[*node][0], places[atom][1] - places[*node][1]];
                turned[atom] = [
                    places[*node][0] + x * cosine + y * sine,
                    places[*node][1] + x * sine - y * cosine,
                ];
            }
            if crowding(&turned, side) < before - 1e-6 {
                places.copy_from_slice(&turned);
                better = true;
            }
        }
        if !better {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use graph_diffuser_data::molecule::Molecule;

    use super::*;

    fn drawn(smiles: &str) -> (Vec<Point>, Vec<[u32; 2]>) {
        let graph = Molecule::from_smiles(smiles).unwrap().ogb_graph();
        let lines = vec![1; graph.edges.len()];
        (places(graph.nodes, &graph.edges, &lines), graph.edges)
    }

    fn assert_bonds_are_one(places: &[Point], edges: &[[u32; 2]]) {
        for &[source, target] in edges {
            let length = apart(places[source as usize], places[target as usize]);
            assert!((length - 1.0).abs() < 1e-6, "bond {source}-{target} is {length} long");
        }
    }

    fn angle(places: &[Point], [first, middle, last]: [usize; 3]) -> f64 {
        let direction = |to: usize| {
            (places[to][1] - places[middle][1]).atan2(places[to][0] - places[middle][0])
        };
        let between = (direction(first) - direction(last)).rem_euclid(TAU).to_degrees();
        between.min(360.0 - between)
    }

    #[test]
    fn a_chain_turns_to_and_fro_by_120_degrees() {
        let (places, edges) = drawn("CCCCCC");
        assert_bonds_are_one(&places, &edges);
        for start in 0..4 {
            assert!((angle(&places, [start, start + 1, start + 2]) - 120.0).abs() < 1e-6);
        }
        // To and fro: the ends are as far as they can be.
        assert!((apart(places[0], places[5]) - 5.0 * (PI / 6.0).cos()).abs() < 0.2, "{places:?}");
    }

    #[test]
    fn fused_rings_are_regular_polygons_with_a_common_bond() {
        // Indole: six and five. Naphthalene: six and six.
        for (smiles, corners) in [("c1ccc2[nH]ccc2c1", [6, 5]), ("c1ccc2ccccc2c1", [6, 6])] {
            let graph = Molecule::from_smiles(smiles).unwrap().ogb_graph();
            let mut sizes: Vec<usize> =
                rings(&neighbors(graph.nodes, &graph.edges)).iter().map(Vec::len).collect();
            sizes.sort_unstable_by(|left, right| right.cmp(left));
            assert_eq!(sizes, corners);
            let (places, edges) = drawn(smiles);
            assert_bonds_are_one(&places, &edges);
            for ring in rings(&neighbors(places.len(), &edges)) {
                let inner = 180.0 - 360.0 / ring.len() as f64;
                for corner in 0..ring.len() {
                    let three = [0, 1, 2].map(|step| ring[(corner + step) % ring.len()]);
                    assert!((angle(&places, three) - inner).abs() < 1e-6, "{smiles}: {three:?}");
                }
            }
        }
    }

    #[test]
    fn no_two_atoms_of_a_drug_lie_on_each_other() {
        for smiles in [
            "CC(=O)Oc1ccccc1C(=O)O",
            "CN1C=NC2=C1C(=O)N(C(=O)N2C)C",
            "CC(C)Cc1ccc(cc1)C(C)C(=O)O",
            "O=C(O)C1(CCCCC1)N2CCOCC2",
            "C1CC2CCC1CC2",
            "CC1(C)SC2C(NC(=O)Cc3ccccc3)C(=O)N2C1C(=O)O",
            "C1CC11CC1",
            "N#CC(C)(C)c1cc(CN2C=NC=N2)cc(c1)C(C)(C)C#N",
            "C12C3C4C1C5C2C3C45",
            "[Na+].[Cl-]",
        ] {
            let graph = Molecule::from_smiles(smiles).unwrap().ogb_graph();
            let bonds = vec![1; graph.edges.len()];
            let places = super::super::layout::places(
                graph.nodes,
                &graph.edges,
                &super::super::trace::Structure::Molecule { bonds },
            );
            for (node, place) in places.iter().enumerate() {
                for other in &places[..node] {
                    assert!(apart(*place, *other) > 0.3, "{smiles}: {places:?}");
                }
            }
        }
    }
}
