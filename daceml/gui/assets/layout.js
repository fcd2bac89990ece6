"use strict";
// Boxes of a folded graph, and where they stand. Pure: plain data in, plain data out.

// Which boxes there are: groups of modules stay closed until they are opened.
//   nodes: [{ half, path }], edges: [[source, target, array, bytes, type]], open: Set of group names
//   -> { boxes: [{ name, nodes: [places], group }], edges: [{ source, target, bytes, arrays }] }
daceml.folded = (nodes, edges, open) => {
  const boxes = [];
  const boxOf = new Array(nodes.length);
  const known = new Map();
  nodes.forEach((node, place) => {
    const groups = daceml.groupsOf(node);
    const closed = groups.find((group) => !open.has(group));
    if (closed === undefined) {
      boxOf[place] = boxes.length;
      boxes.push({ name: String(place), nodes: [place], group: "" });
    } else {
      if (!known.has(closed)) {
        known.set(closed, boxes.length);
        boxes.push({ name: closed, nodes: [], group: closed });
      }
      boxOf[place] = known.get(closed);
      boxes[boxOf[place]].nodes.push(place);
    }
  });
  const joined = new Map();
  for (const [source, target, array, bytes] of edges) {
    const [from, to] = [boxOf[source], boxOf[target]];
    if (from === to) continue;
    const key = `${from} ${to}`;
    if (!joined.has(key)) joined.set(key, { source: from, target: to, bytes: 0, arrays: [] });
    const edge = joined.get(key);
    edge.bytes += bytes;
    edge.arrays.push(array);
  }
  return { boxes, edges: [...joined.values()], boxOf };
};

// The groups that a node lies in, the outermost first: forward, forward.layers, forward.layers.0
daceml.groupsOf = (node) => {
  if (!node.groups) {
    const parts = [node.half, ...(node.path ? node.path.split(".") : [])];
    node.groups = parts.map((_, i) => parts.slice(0, i + 1).join("."));
    if (node.run) node.groups.push(`${node.groups[node.groups.length - 1]} ${node.run}`);
  }
  return node.groups;
};

// Long stretches without any module are folded, too: [100 steps from 301]
daceml.RUN = 100;
daceml.cutRuns = (nodes) => {
  const counts = new Map();
  for (const node of nodes) {
    const key = `${node.half}.${node.path}`;
    counts.set(key, (counts.get(key) || 0) + 1);
  }
  const seen = new Map();
  for (const node of nodes) {
    const key = `${node.half}.${node.path}`;
    if (counts.get(key) <= 3 * daceml.RUN) continue;
    const place = seen.get(key) || 0;
    seen.set(key, place + 1);
    node.run = `steps from ${Math.floor(place / daceml.RUN) * daceml.RUN + 1}`;
  }
};

// Groups to open at first: the outermost ones, as long as there are no more than `most` boxes.
daceml.opened = (nodes, most) => {
  const children = new Map();
  const tops = new Set();
  for (const node of nodes) {
    const groups = daceml.groupsOf(node);
    tops.add(groups[0]);
    groups.forEach((group, i) => {
      if (!children.has(group)) children.set(group, new Set());
      children.get(group).add(i + 1 < groups.length ? groups[i + 1] : node);
    });
  }
  const open = new Set();
  let count = tops.size;
  const waiting = [...tops];
  while (waiting.length) {
    const group = waiting.shift();
    const inside = children.get(group);
    if (count - 1 + inside.size > most) continue;
    count += inside.size - 1;
    open.add(group);
    for (const child of inside) if (typeof child === "string") waiting.push(child);
  }
  return open;
};

// Layers by the longest way from the top; in a layer, boxes stand under what they read.
//   -> each box gets x, y, and the whole its width and height
daceml.BOX = { width: 168, height: 40, across: 24, down: 36 };
daceml.placed = (folded) => {
  const { boxes, edges } = folded;
  const order = boxes.map((box, i) => i).sort((a, b) => boxes[a].nodes[0] - boxes[b].nodes[0]);
  const rank = new Array(boxes.length);
  order.forEach((box, i) => (rank[box] = i));
  const before = boxes.map(() => []);
  for (const edge of edges)
    // folding can make two boxes read each other: the way back is drawn, and decides nothing
    if (rank[edge.source] < rank[edge.target]) before[edge.target].push(edge.source);
  const layers = [];
  const layer = new Array(boxes.length).fill(0);
  for (const box of order) {
    for (const source of before[box]) layer[box] = Math.max(layer[box], layer[source] + 1);
    (layers[layer[box]] = layers[layer[box]] || []).push(box);
  }
  const { width, height, across, down } = daceml.BOX;
  const centre = new Array(boxes.length).fill(0);
  let widest = 0;
  for (const members of layers) {
    const wish = new Map(
      members.map((box) => [
        box,
        before[box].length ? before[box].reduce((sum, source) => sum + centre[source], 0) / before[box].length : 0,
      ]),
    );
    members.sort((a, b) => wish.get(a) - wish.get(b) || rank[a] - rank[b]);
    const mean = members.reduce((sum, box) => sum + wish.get(box), 0) / members.length;
    const first = mean - ((members.length - 1) * (width + across)) / 2;
    members.forEach((box, i) => {
      // as near to what it reads as its neighbours let it
      const least = i ? centre[members[i - 1]] + width + across : -Infinity;
      centre[box] = Math.max(least, members.length === 1 ? wish.get(box) : first + i * (width + across));
    });
    widest = Math.max(widest, members.length);
  }
  const left = centre.reduce((least, x) => Math.min(least, x), Infinity);
  boxes.forEach((box, i) => {
    box.x = centre[i] - left;
    box.y = layer[i] * (height + down);
  });
  const right = boxes.reduce((most, box) => Math.max(most, box.x + width), 0);
  return { ...folded, width: right, height: layers.length * (height + down) - down };
};
