import Bridge
import Cryptography
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import RelayProtocol
import Testing

/// Several configured channels.
@Suite struct ChannelChangeTests {
    private typealias Director = ChannelDirectorStateMachine
    private let start = Instant.zero + .seconds(100)
    private let channels: [ChannelMembership]

    init() throws {
        channels = try ["Team", "Workshop", "Gate"].map { name in
            let link = try InvitationLink(
                host: "192.0.2.1", port: 4433, channelName: #require(DisplayName(name)), channel: ChannelID(),
                token: InvitationToken(), pin: #require(PublicKeyPin([UInt8](repeating: 7, count: 32))))
            return ChannelMembership(
                uuid: link.channel.uuid, descriptor: PTChannelDescriptor(name: name, image: nil), owner: nil,
                isConfigured: true, link: link)
        }
    }

    private func started(chosen: Int? = nil) -> Director {
        var director = Director(channels: channels)
        _ = director.handle(.started(restoring: nil, chosen: chosen.map { channels[$0].uuid }), at: start)
        return director
    }

    private func changed(_ from: Int, _ to: Int) -> [Director.Action] {
        [
            .close(channels[from].uuid, .userRequest), .open(channels[to], .developerRequest),
            .choose(channels[to].uuid),
        ]
    }

    private func refusal(_ actions: [Director.Action]) -> PTChannelError? {
        guard case .refuse(let error)? = actions.last else { return nil }
        return error
    }

    @Test func `the first one is joined unless another one was chosen`() {
        #expect(started().active == channels[0])
        #expect(started(chosen: 2).active == channels[2])
        var director = Director(channels: channels)
        _ = director.handle(.started(restoring: nil, chosen: UUID()), at: start)
        #expect(director.active == channels[0], "the chosen one is not configured any more")
    }

    @Test func `a press changes at once and is announced when no other follows`() {
        var director = started()
        #expect(director.handle(.change(.up, isPress: true), at: start) == changed(0, 1))
        #expect(director.nextDeadline == start + .milliseconds(400))
        #expect(
            director.handle(.deadlineReached, at: start + .milliseconds(400))
                == [.announce(position: 2, name: "Workshop")])
        #expect(director.nextDeadline == nil)
    }

    @Test func `they are a circle`() {
        var director = started()
        var now = start
        for (step, from, to) in [(ChannelStep.down, 0, 2), (.up, 2, 0), (.up, 0, 1), (.up, 1, 2), (.up, 2, 0)] {
            now = now + .seconds(1)
            #expect(director.handle(.change(step, isPress: false), at: now).prefix(3) == changed(from, to)[...])
        }
    }

    @Test func `fast presses connect to the last one only`() {
        var director = started()
        _ = director.handle(.change(.up, isPress: true), at: start)
        for press in 1...4 {
            let now = start + .milliseconds(press * 300)
            #expect(director.handle(.deadlineReached, at: now).isEmpty)
            #expect(director.handle(.change(.up, isPress: true), at: now).isEmpty)
        }
        // Five presses on three channels.
        let settled = start + .milliseconds(1_600)
        #expect(director.nextDeadline == settled)
        #expect(
            director.handle(.deadlineReached, at: settled) == changed(1, 2) + [.announce(position: 3, name: "Gate")])
    }

    @Test func `presses that lead back are no change`() {
        var director = started()
        _ = director.handle(.change(.up, isPress: true), at: start)
        _ = director.handle(.change(.up, isPress: true), at: start)
        _ = director.handle(.change(.down, isPress: true), at: start)
        #expect(
            director.handle(.deadlineReached, at: start + .seconds(1)) == [.announce(position: 2, name: "Workshop")])
    }

    @Test func `a name changes and is announced at once`() {
        var director = started()
        #expect(
            director.handle(.change(.name("Gate"), isPress: false), at: start)
                == changed(0, 2) + [.announce(position: 3, name: "Gate")])
        #expect(
            director.handle(.change(.name("Gate"), isPress: false), at: start) == [.announce(position: 3, name: "Gate")]
        )
        let error = refusal(director.handle(.change(.name("gate"), isPress: false), at: start))
        #expect(error?.code == .channelNotFound)
        #expect(error?.explanation.contains("'Workshop'") == true)
    }

    @Test func `a join is not pushed out and returns to the chosen one`() {
        var director = started()
        _ = director.handle(.change(.up, isPress: false), at: start)
        let program = BusProgram(busName: ":1.5", name: "com.example.Talk")
        _ = director.handle(.registered(program), at: start)
        let uuid = UUID()
        let join = ChannelJoin(
            caller: ":1.5", uuid: uuid, descriptor: PTChannelDescriptor(name: "Alpha", image: nil))
        _ = director.handle(.join(join), at: start)
        for isPress in [true, false] {
            let error = refusal(director.handle(.change(.up, isPress: isPress), at: start))
            #expect(error?.code == .channelLimitReached)
            #expect(error?.explanation.contains("'Alpha'") == true)
        }
        #expect(director.active?.uuid == uuid)
        #expect(
            director.handle(.leave(uuid, caller: ":1.5"), at: start).last == .open(channels[1], .developerRequest))
    }

    @Test func `a press that waits is forgotten when a program joins`() {
        var director = started()
        _ = director.handle(.change(.up, isPress: true), at: start)
        _ = director.handle(.change(.up, isPress: true), at: start)
        _ = director.handle(.registered(BusProgram(busName: ":1.5", name: "")), at: start)
        _ = director.handle(
            .join(ChannelJoin(caller: ":1.5", uuid: UUID(), descriptor: PTChannelDescriptor(name: "A", image: nil))),
            at: start)
        #expect(director.nextDeadline == nil)
        #expect(director.handle(.deadlineReached, at: start + .seconds(1)).isEmpty)
    }

    @Test func `after the user has left a press joins again`() {
        var director = started()
        _ = director.handle(.leave(channels[0].uuid, caller: ":1.9"), at: start)
        #expect(director.active == nil)
        #expect(
            director.handle(.change(.up, isPress: true), at: start)
                == [.open(channels[1], .developerRequest), .choose(channels[1].uuid)])
    }

    @Test func `a user may join any of them by its UUID`() {
        var director = started()
        let join = ChannelJoin(
            caller: ":1.9", uuid: channels[2].uuid, descriptor: PTChannelDescriptor(name: "", image: nil))
        #expect(
            director.handle(.join(join), at: start) == [
                .close(channels[0].uuid, .systemPolicy), .open(channels[2], .developerRequest), .forget,
                .choose(channels[2].uuid),
            ])
    }

    @Test func `one channel and forbidden hours have nothing to change to`() {
        var one = Director(channels: [channels[0]])
        _ = one.handle(.started(restoring: nil), at: start)
        #expect(refusal(one.handle(.change(.up, isPress: true), at: start))?.code == .channelNotFound)
        #expect(one.nextDeadline == nil)
        var none = Director(channels: [])
        #expect(refusal(none.handle(.change(.name("x"), isPress: false), at: start))?.code == .channelNotFound)
        var closed = started()
        _ = closed.handle(.hoursChanged(isOpen: false), at: start)
        #expect(refusal(closed.handle(.change(.up, isPress: true), at: start))?.code == .screenTimeRestriction)
    }
}
