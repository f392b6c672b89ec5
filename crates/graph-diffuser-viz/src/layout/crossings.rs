//! Edge crossings of a straight-line drawing.

use crate::canvas::Point;

use super::euclidean;

/// A node closer to an edge than this counts as lying on it.
const TOUCH: f64 = 1e-6;

/// Counts pairs of edges that cross, touch or overlap, other than at a common end.
pub fn count_crossings(points: &[Point], edges: &[[usize; 2]]) -> usize {
    let pairs = edges.iter().enumerate().flat_map(|(index, first)| {
        edges[index + 1..].iter().filter(move |second| edges_cross(points, *first, **second))
    });
    pairs.count()
}

/// Returns whether two edges cross, touch or overlap, other than at a common end.
pub(super) fn edges_cross(points: &[Point], first: [usize; 2], second: [usize; 2]) -> bool {
    let segment = |edge: [usize; 2]| edge.map(|node| points[node]);
    let common = first.iter().find(|node| second.contains(node));
    let Some(&common) = common else {
        return segments_meet(segment(first), segment(second));
    };
    // Edges with a common end overlap if the other end of one lies on the other edge.
    let other = |edge: [usize; 2]| points[if edge[0] == common { edge[1] } else { edge[0] }];
    first != second
        && (distance_to_segment(other(first), segment(second)) < TOUCH
            || distance_to_segment(other(second), segment(first)) < TOUCH)
}

fn segments_meet(first: [Point; 2], second: [Point; 2]) -> bool {
    // Segments with disjoint bounding boxes do not meet.
    for axis in [0, 1] {
        let [low, high] = [first, second]
            .map(|[from, to]| [from[axis].min(to[axis]) - TOUCH, from[axis].max(to[axis]) + TOUCH]);
        if low[1] < high[0] || high[1] < low[0] {
            return false;
        }
    }
    let side = |[from, to]: [Point; 2], point: Point| {
        (to[0] - from[0]) * (point[1] - from[1]) - (to[1] - from[1]) * (point[0] - from[0])
    };
    let separates = |line: [Point; 2], ends: [Point; 2]| {
        let [left, right] = ends.map(|end| side(line, end));
        (left > 0.0 && right < 0.0) || (left < 0.0 && right > 0.0)
    };
    (separates(first, second) && separates(second, first))
        || second.iter().any(|&end| distance_to_segment(end, first) < TOUCH)
        || first.iter().any(|&end| distance_to_segment(end, second) < TOUCH)
}

/// Returns the distance of a point from a segment.
pub(super) fn distance_to_segment(point: Point, [from, to]: [Point; 2]) -> f64 {
    let along = [to[0] - from[0], to[1] - from[1]];
    let length = along[0] * along[0] + along[1] * along[1];
    let offset = [point[0] - from[0], point[1] - from[1]];
    let share = ((offset[0] * along[0] + offset[1] * along[1]) / length.max(1e-30)).clamp(0.0, 1.0);
    euclidean(point, [from[0] + share * along[0], from[1] + share * along[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossings_include_touching_and_overlapping_edges() {
        let square = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.0], [2.0, 0.0]];
        let count = |edges: &[[usize; 2]]| count_crossings(&square, edges);
        assert_eq!(count(&[[0, 1], [1, 2], [2, 3], [3, 0]]), 0);
        assert_eq!(count(&[[0, 2], [1, 3]]), 1, "the diagonals cross");
        assert_eq!(count(&[[0, 1], [4, 2]]), 1, "node 4 lies on the first edge");
        assert_eq!(count(&[[0, 1], [0, 5]]), 1, "both edges start in the same direction");
        assert_eq!(count(&[[0, 1], [1, 5]]), 0, "a straight path");
    }
}
