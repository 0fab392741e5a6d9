// When tagged devices are opened, tried again and given up.
import MonotonicTime
import TestSupport
import Testing

@testable import LinuxInput

extension TaggedDevice {
    /// An input device as udev tells of it.
    static func input(_ node: String, _ properties: [String: String] = [:]) -> TaggedDevice {
        TaggedDevice(node: node, isSerial: false, properties)
    }
    /// A serial port as udev tells of it.
    static func serial(_ node: String, _ properties: [String: String] = [:]) -> TaggedDevice {
        TaggedDevice(node: node, isSerial: true, properties)
    }

    private init(node: String, isSerial: Bool, _ properties: [String: String]) {
        // Nodes of tests are where udev has none.
        self = TaggedDevice(
            node: isSerial ? "/dev/ttyS0" : "/dev/input/event0", subsystem: isSerial ? "tty" : "input",
            properties: properties)!
        self.node = node
    }
}

@Suite struct TaggedDevicesTests {
    private let node = "/dev/input/event1"

    private func run(
        _ machine: inout TaggedDevicesStateMachine, _ event: TaggedDevicesStateMachine.Event, at seconds: Double = 0
    ) -> [TaggedDevicesStateMachine.Action] {
        machine.handle(event, at: .zero + .seconds(seconds))
    }

    @Test func `a tagged device is opened once and closed when it goes`() {
        var machine = TaggedDevicesStateMachine()
        #expect(run(&machine, .tagged(.input(node))) == [.open(.input(node))])
        #expect(run(&machine, .opened(node: node)) == [])
        // udev tells of it again and again.
        #expect(run(&machine, .tagged(.input(node))) == [])
        #expect(run(&machine, .all([.input(node)])) == [])
        #expect(run(&machine, .untagged(node: node)) == [.close(node: node)])
        #expect(run(&machine, .untagged(node: node)) == [])
    }

    @Test func `another rule opens it anew`() {
        var machine = TaggedDevicesStateMachine()
        _ = run(&machine, .tagged(.input(node)))
        _ = run(&machine, .opened(node: node))
        let changed = TaggedDevice.input(node, ["PTTD_GRAB": "1"])
        #expect(run(&machine, .tagged(changed)) == [.close(node: node), .open(changed)])
    }

    @Test func `a missing permission is told until it arrives`() {
        var machine = TaggedDevicesStateMachine()
        _ = run(&machine, .tagged(.input(node)))
        let told = run(&machine, .failed(node: node, .permission(node: node)))
        #expect(told == [.problem(node: node, LinuxInputError.permission(node: node).description)])
        // No clock: it comes with news only.
        #expect(machine.nextDeadline == nil)
        #expect(run(&machine, .accessChanged(node: "/dev/input/event2")) == [])
        #expect(run(&machine, .accessChanged(node: node)) == [.open(.input(node))])
        #expect(run(&machine, .failed(node: node, .permission(node: node))) == [])
        #expect(run(&machine, .tagged(.input(node))) == [.open(.input(node))])
        #expect(run(&machine, .opened(node: node)) == [.problem(node: node, nil)])
    }

    @Test func `when changes of permissions were missed, all that were denied are tried, and nothing else`() {
        var machine = TaggedDevicesStateMachine()
        let nodes = (0...3).map { "/dev/input/event\($0)" }
        for node in nodes { _ = run(&machine, .tagged(.input(node))) }
        _ = run(&machine, .opened(node: nodes[1]))
        _ = run(&machine, .failed(node: nodes[2], .inUse(node: nodes[2])))
        for node in [nodes[3], nodes[0]] { _ = run(&machine, .failed(node: node, .permission(node: node))) }
        #expect(run(&machine, .accessChanged(node: nil)) == [.open(.input(nodes[0])), .open(.input(nodes[3]))])
        #expect(run(&machine, .accessChanged(node: nil)) == [])
    }

    @Test func `a device that somebody else has is tried at growing pauses`() {
        var machine = TaggedDevicesStateMachine()
        _ = run(&machine, .tagged(.input(node)))
        var time = 0.0
        for pause in [1.0, 2, 4, 8, 16, 32, 60, 60] {
            let told = run(&machine, .failed(node: node, .inUse(node: node)), at: time)
            #expect(told.isEmpty == (time > 0))
            time += pause
            #expect(machine.nextDeadline == .zero + .seconds(time))
            #expect(run(&machine, .deadline, at: time - 0.5) == [])
            #expect(run(&machine, .deadline, at: time) == [.open(.input(node))])
        }
        #expect(run(&machine, .opened(node: node), at: time) == [.problem(node: node, nil)])
        #expect(machine.nextDeadline == nil)
    }

    @Test func `one that is gone is not tried`() {
        var machine = TaggedDevicesStateMachine()
        _ = run(&machine, .tagged(.serial(node)))
        _ = run(&machine, .opened(node: node))
        #expect(run(&machine, .lost(node: node, .gone(node: node))) == [])
        #expect(machine.nextDeadline == nil)
        #expect(run(&machine, .tagged(.serial(node))) == [.open(.serial(node))])
    }

    @Test func `one that was lost and is there anew is opened though its news was missed`() {
        var machine = TaggedDevicesStateMachine()
        _ = run(&machine, .tagged(.input(node)))
        _ = run(&machine, .opened(node: node))
        #expect(run(&machine, .lost(node: node, .gone(node: node))) == [])
        #expect(run(&machine, .all([.input(node)])) == [.open(.input(node))])
    }

    @Test func `a mistake in the rule is told while the device works and withdrawn with it`() {
        var machine = TaggedDevicesStateMachine()
        let wrong = TaggedDevice.input(node, ["PTTD_GRAB": "yes"])
        #expect(run(&machine, .tagged(wrong)) == [.open(wrong)])
        let told = run(&machine, .opened(node: node))
        guard told.count == 1, case .problem(node: node, let words?) = told[0] else {
            Issue.record("\(told)")
            return
        }
        #expect(words.contains("PTTD_GRAB is \"yes\""))
        let right = TaggedDevice.input(node, ["PTTD_GRAB": "1"])
        #expect(run(&machine, .tagged(right)) == [.close(node: node), .open(right)])
        #expect(run(&machine, .opened(node: node)) == [.problem(node: node, nil)])
    }

    @Test func `one too many waits until a place is free`() {
        var machine = TaggedDevicesStateMachine()
        for index in 0..<TaggedDevicesStateMachine.openMax {
            _ = run(&machine, .tagged(.input("/dev/input/event1\(index)")))
            _ = run(&machine, .opened(node: "/dev/input/event1\(index)"))
        }
        let told = run(&machine, .tagged(.input("/dev/input/event99")))
        #expect(told.count == 1)
        #expect("\(told)".contains("at most"))
        #expect(
            run(&machine, .untagged(node: "/dev/input/event10"))
                == [.close(node: "/dev/input/event10"), .open(.input("/dev/input/event99"))])
        #expect(run(&machine, .opened(node: "/dev/input/event99")) == [.problem(node: "/dev/input/event99", nil)])
    }

    @Test func `whatever happens nothing untagged is open and problems are withdrawn`() {
        var random = SeededGenerator()
        for _ in 0..<200 {
            var machine = TaggedDevicesStateMachine()
            var open: Set<String> = []
            var problems: Set<String> = []
            var tagged: Set<String> = []
            var now = Instant.zero
            let nodes = (0..<Int.random(in: 1...50, using: &random)).map { "/dev/input/event\($0)" }

            func carryOut(_ actions: [TaggedDevicesStateMachine.Action]) {
                for action in actions {
                    switch action {
                    case .open(let device):
                        #expect(tagged.contains(device.node) && !open.contains(device.node))
                        if random.chance(60) {
                            open.insert(device.node)
                            carryOut(machine.handle(.opened(node: device.node), at: now))
                        } else {
                            carryOut(machine.handle(.failed(node: device.node, failure(device.node)), at: now))
                        }
                    case .close(let node): #expect(open.remove(node) != nil)
                    case .problem(let node, nil): #expect(problems.remove(node) != nil)
                    case .problem(let node, _?): problems.insert(node)
                    }
                }
            }
            func failure(_ node: String) -> LinuxInputError {
                let all: [LinuxInputError] = [
                    .permission(node: node), .gone(node: node), .inUse(node: node), .notAnInputDevice(node: node),
                    .system(node: node, call: "read", code: 5),
                ]
                return all.randomElement(using: &random) ?? .gone(node: node)
            }

            for _ in 0..<100 {
                now = now + .milliseconds(Int.random(in: 0...5000, using: &random))
                let node = nodes.randomElement(using: &random) ?? ""
                switch Int.random(in: 0..<6, using: &random) {
                case 0, 1:
                    tagged.insert(node)
                    let rule = random.chance(30) ? ["PTTD_GRAB": "\(random.next() % 3)"] : [:]
                    carryOut(machine.handle(.tagged(.input(node, rule)), at: now))
                case 2:
                    tagged.remove(node)
                    carryOut(machine.handle(.untagged(node: node), at: now))
                case 3 where open.contains(node):
                    open.remove(node)
                    carryOut(machine.handle(.lost(node: node, failure(node)), at: now))
                case 4: carryOut(machine.handle(.accessChanged(node: node), at: now))
                default: carryOut(machine.handle(.deadline, at: now))
                }
                #expect(open.isSubset(of: tagged) && problems.isSubset(of: tagged))
                #expect(open.count <= TaggedDevicesStateMachine.openMax)
            }
            tagged = []
            carryOut(machine.handle(.all([]), at: now))
            #expect(open.isEmpty && problems.isEmpty && machine.nextDeadline == nil)
        }
    }
}
