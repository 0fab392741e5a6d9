// A schedule from a seed.
import TestSupport

extension Schedule {
    /// The schedule of a seed. Each has a few kinds of trouble only, so that rare combinations come up more often than when
    /// everything happens at once.
    public init(seed: UInt64) {
        if seed % Self.nearbyEvery == 0 {
            self.init(nearby: seed)
            return
        }
        if seed % Self.clusterEvery == Self.clusterRemainder {
            self.init(cluster: seed)
            return
        }
        var random = SeededGenerator(seed: seed)
        let devices = random.chance(70) ? 2 : 3
        // The plain channel most often: that is what most have.
        let rules = random.chance(50) ? 0 : Int.random(in: 0..<FleetRules.all.count, using: &random)
        let length = Int.random(in: 4_000...16_000, using: &random)
        let trouble = Verb.allCases.filter {
            $0 != .hold && $0 != .talk && $0 != .key && !$0.isNearbyOnly && !$0.isClusterOnly
        }
        .shuffled(using: &random)
        .prefix(Int.random(in: 0...8, using: &random))
        var actions: [ScheduledAction] = []
        for _ in 0..<Int.random(in: 1...8, using: &random) {
            let verb: Verb = random.chance(75) ? .hold : random.chance(70) ? .talk : .key
            actions.append(Self.action(verb, devices: devices, within: length, &random))
        }
        for verb in trouble {
            for _ in 0..<Int.random(in: 1...3, using: &random) {
                actions.append(Self.action(verb, devices: devices, within: length, &random))
            }
        }
        // What bluetoothd has not told when a machine falls asleep is told when it wakes up.
        for sleep in actions where sleep.verb == .sleep && random.chance(25) {
            let time = Int.random(in: 1_000...3_000, using: &random)
            actions.append(ScheduledAction(at: sleep.at - time / 2, .hang, device: sleep.device, for: time))
            actions.append(
                ScheduledAction(
                    at: sleep.at - Int.random(in: 50...400, using: &random), .hold, device: sleep.device,
                    for: Int.random(in: 300...3_000, using: &random)))
        }
        // What was recorded is of use to nobody before the relay has forgotten it, with all else that is not on its disk.
        for replay in actions where replay.verb == .replay && random.chance(60) {
            for time in [6_000, 2_500] {
                actions.append(
                    ScheduledAction(
                        at: max(0, replay.at - time), .relaykill, for: Int.random(in: 50...1_500, using: &random)))
            }
        }
        // Whatever is pulled is held, most often.
        for pull in actions where pull.verb == .pull && random.chance(70) {
            actions.append(
                ScheduledAction(
                    at: pull.at - Int.random(in: 50...800, using: &random), .key, device: pull.device, n: pull.n,
                    for: pull.time + 1_000))
        }
        actions += Self.conflicts(among: actions, devices: devices, &random)
        if random.chance(12) { actions.append(Self.action(.move, devices: devices, within: length, &random)) }
        // On some new networks nobody answers at first.
        for move in actions where move.verb == .move && random.chance(30) {
            let arrival = move.value == 0 ? move.at : move.end
            let time = Int.random(in: 1_200...2_500, using: &random)
            actions.append(ScheduledAction(at: arrival - 20, .cut, device: move.device, for: time))
        }
        // Trouble in the middle of a press finds more than trouble in between.
        for index in actions.indices
        where actions[index].verb.isTrouble && random.chance(actions[index].verb == .emergency ? 80 : 40) {
            guard let press = actions.filter({ $0.verb == .hold }).randomElement(using: &random) else { continue }
            actions[index].at = press.at + Int.random(in: 0...max(1, press.time + 400), using: &random)
            if actions[index].verb == .emergency {
                actions[index].device = (press.device + 1) % devices
            } else if !actions[index].verb.isOfRelay, random.chance(60) {
                actions[index].device = press.device
            }
        }
        actions.sort { $0.at < $1.at }
        self.init(seed: seed, devices: devices, rules: rules, actions: actions)
    }

    /// One seed of so many has a schedule of a channel nearby.
    public static let nearbyEvery: UInt64 = 5

    /// The schedule of a seed whose channel is one nearby. What only pttd and its buttons see is left to the others.
    private init(nearby seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let devices = [2, 3, 3, 4][Int.random(in: 0..<4, using: &random)]
        let length = Int.random(in: 4_000...14_000, using: &random)
        var actions: [ScheduledAction] = []
        for _ in 0..<Int.random(in: 1...6, using: &random) {
            actions.append(
                Self.action(random.chance(85) ? .hold : .talk, devices: devices, within: length, &random))
        }
        let hosts: [Verb] = [.kill, .power, .quit, .part, .cut, .split]
        for _ in 0..<Int.random(in: 1...4, using: &random) {
            let verb = hosts[Int.random(in: 0..<hosts.count, using: &random)]
            var action = Self.action(verb, devices: devices, within: length, &random)
            // The creator hosts first, so that it is whom most of it is about.
            if random.chance(50) { action.device = verb == .split ? 0 : NearbySite.creator }
            actions.append(action)
        }
        let others: [Verb] = [
            .loss, .jitter, .doubles, .deaf, .dumb, .reset, .garbage, .emergency, .sleep, .call,
        ]
        for verb in others.shuffled(using: &random).prefix(Int.random(in: 0...3, using: &random)) {
            actions.append(Self.action(verb, devices: devices, within: length, &random))
        }
        // A stranger comes when the creator has gone, so that another host hears of it.
        for action in actions where action.verb.isNearbyOnly && action.device == NearbySite.creator && random.chance(20)
        {
            actions.append(Self.action(.stranger, devices: devices, within: 0, &random))
            actions[actions.count - 1].at = action.at + Int.random(in: -500...2_500, using: &random)
        }
        // Most of it in the middle of what somebody says.
        for index in actions.indices
        where actions[index].verb.isTrouble && actions[index].verb != .stranger && random.chance(60) {
            guard let press = actions.filter({ $0.verb == .hold }).randomElement(using: &random) else { continue }
            actions[index].at = press.at + Int.random(in: 0...max(1, press.time + 400), using: &random)
        }
        actions.sort { $0.at < $1.at }
        self.init(seed: seed, devices: devices, rules: 0, isNearby: true, actions: actions)
    }

    /// Presses, some of them of emergencies, in the middle of presses of others: whoever has the floor then.
    private static func conflicts(
        among actions: [ScheduledAction], devices: Int, _ random: inout SeededGenerator
    ) -> [ScheduledAction] {
        var made: [ScheduledAction] = []
        for press in actions where press.verb == .hold && press.time > 600 && random.chance(20) {
            let isUrgent = random.chance(40)
            made.append(
                ScheduledAction(
                    at: press.at + Int.random(in: 200...(press.time - 200), using: &random),
                    isUrgent ? .emergency : .hold, device: (press.device + 1) % devices, n: isUrgent ? 1 : 0,
                    for: Int.random(in: 500...4_000, using: &random)))
        }
        return made
    }

    static func action(
        _ verb: Verb, devices: Int, within length: Int, _ random: inout SeededGenerator
    ) -> ScheduledAction {
        var action = ScheduledAction(
            at: 2_000 + Int.random(in: 0...length, using: &random), verb,
            device: verb.isOfRelay ? 0 : Int.random(in: 0..<devices, using: &random))
        func time(_ range: ClosedRange<Int>) { action.time = Int.random(in: range, using: &random) }
        func value(_ range: ClosedRange<Int>) { action.value = Int.random(in: range, using: &random) }
        switch verb {
        case .hold:
            action.n = random.chance(10) ? 2 : random.chance(70) ? 0 : 1
            time(random.chance(15) ? 20...150 : 200...5_000)
            // Longer than the talk-time limit, now and then.
            if random.chance(4) { time(12_000...16_000) }
        case .emergency:
            action.n = 1
            time(300...5_000)
        case .key:
            action.n = Int.random(in: 0...1, using: &random)
            time(200...5_000)
        case .pull:
            action.n = Int.random(in: 0...1, using: &random)
            time(50...3_000)
        case .mute:
            action.n = Int.random(in: 0...1, using: &random)
            time(50...1_500)
        case .beat:
            action.n = Int.random(in: 0...1, using: &random)
            time(500...8_000)
        case .noise:
            action.n = Int.random(in: 0...1, using: &random)
            value(2...255)
        case .away:
            action.n = Int.random(in: 0...2, using: &random)
            time(100...6_000)
            value(0...4_000)
        case .bluetoothd, .adapter: time(200...4_000)
        case .hang: time(100...6_000)
        case .talk, .vanish:
            action.n = Int.random(in: 0...1, using: &random)
            time(100...4_000)
        case .kill: time(50...4_000)
        case .power, .quit: time(random.chance(60) ? 3_000...14_000 : 200...4_000)
        case .part: time(500...8_000)
        case .split:
            value(1...((1 << devices) - 2))
            time(random.chance(70) ? 2_000...15_000 : 100...3_000)
        case .stranger: time(5_000...15_000)
        case .sleep:
            value(0...1)
            // Longer than a relay waits for a member, now and then.
            time(random.chance(15) ? 40_000...70_000 : 100...8_000)
        case .call: time(100...5_000)
        case .microphone, .speaker: time(50...4_000)
        case .clock: time(200...5_000)
        case .loss:
            value(5...60)
            time(500...8_000)
        case .jitter:
            value(10...300)
            time(500...8_000)
        case .doubles:
            value(10...100)
            time(500...8_000)
        case .deaf, .dumb, .cut: time(random.chance(80) ? 100...5_000 : 5_000...12_000)
        case .reset, .garbage, .replay: break
        case .move:
            value(0...5)
            if action.value == 5 { action.value = 4 }
            time(random.chance(80) ? 50...6_000 : 6_000...40_000)
        case .renew: action.n = random.chance(25) ? 1 : 0
        case .channel: action.n = Int.random(in: 0...1, using: &random)
        case .visit: time(300...5_000)
        case .program:
            action.n = Int.random(in: 0...1, using: &random)
            value(0...3)
            time(300...5_000)
        case .disk:
            action.n = Int.random(in: 0...1, using: &random)
            value(0...3)
            time(300...5_000)
        case .relaykill:
            action.n = random.chance(25) ? 1 : 0
            time(50...4_000)
        case .relaypower, .natscut: time(200...8_000)
        case .natsdown: time(200...9_000)
        case .relayhalt:
            action.n = random.chance(25) ? 1 : 0
            time(50...9_000)
        case .drain:
            action.n = random.chance(30) ? 1 : 0
            value(0...2)
            time(50...6_000)
        case .rules:
            value(0...(FleetRules.all.count - 1))
            time(1_000...6_000)
        }
        return action
    }
}
