// Schedules of clusters.
import TestSupport

extension Schedule {
    /// One seed of so many has a schedule of a cluster.
    public static let clusterEvery: UInt64 = 20
    /// Those with this remainder.
    public static let clusterRemainder: UInt64 = 12

    /// The schedule of a seed whose relays are a cluster: it is about shares that move while people talk.
    init(cluster seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let devices = random.chance(60) ? 2 : 3
        let rules = random.chance(60) ? 0 : Int.random(in: 0..<FleetRules.all.count, using: &random)
        if random.chance(15) {
            self.init(seed: seed, devices: devices, rules: rules, isCluster: true, actions: [])
            actions = Self.peace(devices: devices, &random)
            return
        }
        // Within the first 20 s or so the first relay gives two thirds of the shares to the others.
        let length = Int.random(in: 4_000...24_000, using: &random)
        var actions: [ScheduledAction] = []
        for _ in 0..<Int.random(in: 3...12, using: &random) {
            actions.append(Self.action(random.chance(85) ? .hold : .talk, devices: devices, within: length, &random))
        }
        let relays: [Verb] = [.relaykill, .relaypower, .relayhalt, .drain, .drain, .natscut, .natscut, .natsdown]
        for _ in 0..<Int.random(in: 0...5, using: &random) {
            var action = Self.action(
                relays[Int.random(in: 0..<relays.count, using: &random)], devices: devices, within: length, &random)
            // Whoever serves the channel, most often.
            action.n = random.chance(60) ? 3 : Int.random(in: 0..<3, using: &random)
            if action.verb == .natscut { action.value = random.chance(50) ? 1 : 0 }
            // Longer than until others may remove the relay, and longer than its entry lasts.
            if action.verb != .drain, random.chance(40) {
                action.time = Int.random(in: random.chance(60) ? 6_000...12_000 : 15_000...30_000, using: &random)
            }
            actions.append(action)
        }
        let others: [Verb] = [
            .loss, .jitter, .doubles, .deaf, .dumb, .cut, .reset, .garbage, .emergency, .emergency, .sleep, .call,
            .kill, .move, .replay, .renew, .rules, .channel, .visit,
        ]
        for verb in others.shuffled(using: &random).prefix(Int.random(in: 0...3, using: &random)) {
            actions.append(Self.action(verb, devices: devices, within: length, &random))
        }
        // Most of it in the middle of what somebody says.
        for index in actions.indices where actions[index].verb.isTrouble && random.chance(60) {
            guard let press = actions.filter({ $0.verb == .hold }).randomElement(using: &random) else { continue }
            actions[index].at = press.at + Int.random(in: 0...max(1, press.time + 400), using: &random)
        }
        actions.sort { $0.at < $1.at }
        self.init(seed: seed, devices: devices, rules: rules, isCluster: true, actions: actions)
    }

    /// One press after the other, and nothing goes wrong: shares move meanwhile, for the relays have just begun.
    private static func peace(devices: Int, _ random: inout SeededGenerator) -> [ScheduledAction] {
        var time = peaceBegins
        return (0..<Int.random(in: 2...10, using: &random)).map { _ in
            time += peaceBetween + Int.random(in: 0...1_500, using: &random)
            let press = ScheduledAction(
                at: time, .hold, device: Int.random(in: 0..<devices, using: &random),
                n: Int.random(in: 0...1, using: &random), for: Int.random(in: 300...4_000, using: &random))
            time = press.end
            return press
        }
    }

    /// All are on the channel by then, in milliseconds.
    private static let peaceBegins = 5_000
    /// After the release of a button the last word is heard within this time, in milliseconds.
    private static let peaceBetween = 400

    /// Whether nothing goes wrong, and shares move: each press is heard by all then.
    var isPeaceful: Bool {
        guard isCluster, let first = actions.first, first.at >= Self.peaceBegins else { return false }
        return actions.allSatisfy { $0.verb == .hold && $0.n < 2 && (300...4_000).contains($0.time) }
            && zip(actions, actions.dropFirst()).allSatisfy { $1.at >= $0.end + Self.peaceBetween }
    }
}
