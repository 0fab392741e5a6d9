// A program with a channel manager on the bus of one machine, as one that uses `import PushToTalk` is. It outlives pttd.
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import RelayProtocol

@testable import Bridge

/// One program. D-Bus can start the one with a name.
final class ProgramOnBus {
    /// Whom a program says it hears.
    private static let speaker = PTParticipant(name: "somebody", image: nil)

    private unowned let device: Device
    private let world: World
    private let clock: MachineClock
    let number: Int
    let name: String
    /// Its unique name while it runs.
    private(set) var busName: String?
    private var lives = 0
    /// It has asked to transmit, and not to stop.
    private(set) var isTransmitting = false
    /// What it was asked about a push and has not answered.
    private var asked: PushDeliveryIdentifier?
    private var pushes = 0

    init(device: Device, number: Int) {
        self.device = device
        world = device.world
        clock = device.clock
        self.number = number
        name = number == 0 ? "org.example.Radio" : ""
    }

    private func note(_ text: String) { world.note(device.name, "program \(number): \(text)") }

    // MARK: Its life

    /// It runs, and has a channel manager.
    func start() {
        guard busName == nil else { return }
        lives += 1
        busName = ":1.\(100 * (number + 1) + lives)"
        note("runs as \(busName ?? "")")
        register()
    }

    /// D-Bus starts it; that may fail.
    func startByName() {
        let (life, process, time) = (lives, device.process, device.path.milliseconds(50...900))
        clock.after(time) { [self] in
            if time < .milliseconds(130) {
                note("does not start")
                if let process, process.isAlive {
                    process.channel.handle(.push(.programNotStarted(reason: "it crashed")))
                }
            } else if life == lives, busName == nil {
                start()
            }
        }
    }

    private func register() {
        guard let busName else { return }
        asked = nil
        device.process?.director.step(.registered(BusProgram(busName: busName, name: name)))
    }

    /// pttd is there: it registers.
    func daemonCame() {
        let life = lives
        isTransmitting = false
        clock.after(device.path.milliseconds(5...200)) { [self] in
            if life == lives, device.process?.director.machine.programs[busName ?? ""] == nil { register() }
        }
    }

    /// It ends without a word; the bus tells it.
    func die() {
        guard let gone = busName else { return }
        note("dies")
        busName = nil
        asked = nil
        isTransmitting = false
        device.wentUp()
        clock.after(.milliseconds(2)) { [self] in device.process?.director.step(.gone(busName: gone)) }
    }

    // MARK: What it wants

    func join() {
        guard let busName else { return }
        let link = device.fleet.invitations[2]
        let descriptor = PTChannelDescriptor(name: "", image: nil)
        device.process?.director.step(
            .join(ChannelJoin(caller: busName, uuid: link.channel.uuid, descriptor: descriptor, link: link)))
    }

    func leave() {
        device.process?.director.step(
            .leave(device.fleet.invitations[2].channel.uuid, caller: busName ?? ":1.9"))
    }

    func begin() {
        guard !isTransmitting, let busName, let process = device.process, let bridge = process.director.bridge,
            bridge.uuid == device.fleet.invitations[2].channel.uuid
        else { return }
        note("asks to transmit")
        isTransmitting = true
        process.heard(process.device.newEdge())
        bridge.requestBegin(program: busName) { [weak self] error in
            if error != nil { self?.stopped() }
        }
    }

    func stop() {
        guard isTransmitting else { return }
        note("asks to stop")
        device.process?.director.bridge?.requestStop()
        stopped()
    }

    private func stopped() {
        guard isTransmitting else { return }
        isTransmitting = false
        device.wentUp()
    }

    /// Its transmission has ended: but it may be the floor that is waited for.
    private func ended() {
        guard isTransmitting else { return }
        guard let process = device.process, process.channel.machine.waiting != nil else { return stopped() }
        let life = lives
        clock.after(.milliseconds(100)) { [self] in
            let machine = process.channel.machine
            guard life == lives, process.isAlive, machine.transmission == nil else { return }
            ended()
        }
    }

    // MARK: What it is told

    /// pttd tells its delegate, when it runs as the one that is told.
    func told(_ callback: DelegateCallback) {
        switch callback {
        case .didEndTransmitting: ended()
        case .didJoinChannel, .didLeaveChannel: asked = nil
        case .incomingPush(_, let delivery):
            if asked != nil {
                world.fail("I6", "\(device.name): a program is asked about a push before it has answered")
            }
            asked = delivery.identifier
            answer(delivery) { [pushes] in
                pushes % 5 == 4 ? .leaveChannel : .activeRemoteParticipant(Self.speaker)
            }
            pushes += 1
        case .incomingServiceUpdatePush(_, let delivery, _, _): answer(delivery, with: nil)
        default: break
        }
    }

    private func answer(_ delivery: PushDelivery, with result: (() -> PTPushResult)?) {
        let (life, process, identifier) = (lives, device.process, delivery.identifier)
        clock.after(device.path.milliseconds(1...400)) { [self] in
            guard let process, process.isAlive, process === device.process else { return }
            guard life == lives, busName != nil else {
                return process.channel.handle(.push(.notAnswered(identifier, reason: "the program is gone")))
            }
            guard let result else { return process.channel.handle(.push(.completed(identifier))) }
            if asked == identifier { asked = nil }
            process.channel.handle(.push(.answered(identifier, result())))
            // Who was said to speak has said enough.
            process.director.heardEnough()
        }
    }
}

extension Device {
    /// A program joins a channel and does something there; in the end the channel is left.
    func use(_ program: ProgramOnBus, how: Int, for time: Duration) {
        program.start()
        clock.after(.milliseconds(20)) { program.join() }
        let soon = Duration.milliseconds(200)
        switch how {
        case 0:
            clock.after(soon) { program.begin() }
            clock.after(soon + time / 2) { program.stop() }
        case 1:
            clock.after(soon) { program.begin() }
            clock.after(soon + time / 2) { program.die() }
        case 2:
            for place in 0..<4 {
                clock.after(soon + .milliseconds(place * 60)) { [self] in push(place) }
            }
        default:
            clock.after(soon) { [self] in push(0) }
            clock.after(soon + time / 4) { program.die() }
            for place in 0..<3 {
                clock.after(soon + time / 2 + .milliseconds(place * 60)) { [self] in push(place) }
            }
            clock.after(soon + time * 3 / 4) { program.begin() }
        }
        if how >= 2 { clock.after(soon + time - .milliseconds(30)) { [self] in push(3) } }
        clock.after(soon + time) { program.leave() }
    }

    /// A push comes for whatever channel is the active one.
    private func push(_ place: Int) {
        let text = place % 3 == 1 ? #"{"aps":{"ptt-push-type":"service-update"}}"# : #"{"speaker":"somebody"}"#
        guard let process, let payload = try? PushPayload(validating: text) else { return }
        process.pushesMade += 1
        let push = Push(
            identifier: "\(process.pushesMade)", token: nil, payload: payload,
            expiry: place == 3 ? .at(clock.now + .seconds(20)) : .immediate)
        process.pushes.insert(push.identifier)
        process.channel.handle(.push(.received(push)))
    }
}
