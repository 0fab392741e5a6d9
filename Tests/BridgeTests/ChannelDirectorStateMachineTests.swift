import Bridge
import Cryptography
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import RelayProtocol
import Testing
import Vocabulary

private typealias Director = ChannelDirectorStateMachine

/// A link to a channel of its own.
private func invitation(_ name: String = "Team") throws -> InvitationLink {
    try InvitationLink(
        host: "192.0.2.1", port: 4433, channelName: #require(DisplayName(name)), channel: ChannelID(),
        token: InvitationToken(), pin: #require(PublicKeyPin([UInt8](repeating: 7, count: 32))))
}

private func membership(_ link: InvitationLink, isConfigured: Bool = false) -> ChannelMembership {
    ChannelMembership(
        uuid: link.channel.uuid, descriptor: PTChannelDescriptor(name: link.channelName.text, image: nil), owner: nil,
        isConfigured: isConfigured, link: link)
}

@Suite struct ChannelDirectorStateMachineTests {
    private let now = Instant.zero
    private let talk = BusProgram(busName: ":1.5", name: "com.example.Talk")
    private let nameless = BusProgram(busName: ":1.6", name: "")
    private let user = ":1.9"
    private let uuid = UUID()
    private let link: InvitationLink
    private let configured: ChannelMembership

    init() throws {
        link = try invitation("Local")
        configured = membership(link, isConfigured: true)
    }

    /// A director on its configured channel, with these programs.
    private func started(
        programs: [BusProgram] = [], policy: JoinPolicy = JoinPolicy(), restoring: ChannelMembership? = nil
    ) -> Director {
        var director = Director(configured: configured, policy: policy)
        _ = director.handle(.started(restoring: restoring), at: now)
        for program in programs { _ = director.handle(.registered(program), at: now) }
        return director
    }

    private func join(
        _ caller: String, _ uuid: UUID?, link: InvitationLink? = nil, application: Bool? = nil,
        isForeground: Bool = true, replacing: UUID? = nil
    ) -> Director.Event {
        .join(
            ChannelJoin(
                caller: caller, isForeground: isForeground, uuid: uuid,
                descriptor: PTChannelDescriptor(name: "Alpha", image: nil), link: link,
                wantsApplicationMedia: application, replacing: replacing))
    }

    /// The code that a refused event was refused with; nil: it was not refused.
    private func refusal(_ actions: [Director.Action]) -> PTChannelError.Code? {
        guard case .refuse(let error)? = actions.last else { return nil }
        return error.code
    }

    // MARK: The configured channel

    @Test func `the configured channel is joined at the start`() {
        var director = Director(configured: configured)
        #expect(director.handle(.started(restoring: nil), at: now) == [.open(configured, .developerRequest)])
        #expect(director.active == configured)
        #expect(director.nextDeadline == nil)
    }

    @Test func `without a configured channel there is none`() {
        var director = Director(configured: nil)
        #expect(director.handle(.started(restoring: nil), at: now) == [])
        #expect(director.active == nil)
    }

    @Test func `it yields to a programs join and returns`() throws {
        var director = started(programs: [talk])
        let actions = director.handle(join(talk.busName, uuid), at: now)
        let joined = try #require(director.active)
        #expect(actions == [.close(configured.uuid, .systemPolicy), .open(joined, .developerRequest), .remember])
        #expect(joined.owner == ChannelOwner(name: talk.name, busName: talk.busName))
        #expect(joined.hasApplicationMedia)
        #expect(
            director.handle(.leave(uuid, caller: talk.busName), at: now) == [
                .close(uuid, .developerRequest), .forget, .open(configured, .developerRequest),
            ])
    }

    @Test func `it yields to a users join by invitation`() throws {
        var director = started()
        let other = try invitation("Team")
        _ = director.handle(join(user, nil, link: other), at: now)
        let joined = try #require(director.active)
        #expect(joined.uuid == other.channel.uuid)
        #expect(joined.owner == nil)
        #expect(!joined.hasApplicationMedia)
        #expect(director.link(of: joined) == other)
        #expect(
            director.handle(.leave(joined.uuid, caller: ":1.77"), at: now) == [
                .close(joined.uuid, .userRequest), .forget, .open(configured, .developerRequest),
            ])
    }

    @Test func `a user who leaves it is not sent back until it is joined again`() {
        var director = started(programs: [talk])
        #expect(
            director.handle(.leave(configured.uuid, caller: user), at: now) == [.close(configured.uuid, .userRequest)])
        _ = director.handle(join(talk.busName, uuid), at: now)
        #expect(
            director.handle(.leave(uuid, caller: talk.busName), at: now) == [.close(uuid, .developerRequest), .forget])
        #expect(
            director.handle(join(user, configured.uuid), at: now) == [.open(configured, .developerRequest), .forget])
        #expect(director.active == configured)
        // And from now on it returns again.
        _ = director.handle(join(talk.busName, uuid), at: now)
        #expect(
            director.handle(.leave(uuid, caller: talk.busName), at: now).last == .open(configured, .developerRequest))
    }

    @Test func `a program takes the configured channel over with its link`() throws {
        var director = started(programs: [talk])
        let actions = director.handle(join(talk.busName, configured.uuid), at: now)
        let joined = try #require(director.active)
        #expect(
            actions == [.close(configured.uuid, .systemPolicy), .open(joined, .developerRequest), .remember])
        #expect(joined.owner?.busName == talk.busName)
        #expect(!joined.hasApplicationMedia)
        #expect(!joined.isConfigured)
        #expect(director.link(of: joined) == link)
        #expect(
            director.handle(.leave(configured.uuid, caller: talk.busName), at: now).last
                == .open(configured, .developerRequest))
    }

    @Test func `a user cannot join it twice`() {
        var director = started()
        #expect(refusal(director.handle(join(user, configured.uuid), at: now)) == .channelLimitReached)
        #expect(refusal(director.handle(join(user, nil, link: link), at: now)) == .channelLimitReached)
        #expect(director.active == configured)
    }

    @Test func `a user may replace it by another invitation to it`() throws {
        var director = started()
        var moved = link
        moved.port = 4434
        _ = director.handle(join(user, nil, link: moved), at: now)
        #expect(director.active.flatMap { director.link(of: $0) } == moved)
        #expect(director.active?.isConfigured == false)
    }

    // MARK: The limit of one

    @Test(arguments: [true, false]) func `a second channel is refused`(isSame: Bool) {
        var director = started(programs: [talk, nameless])
        _ = director.handle(join(talk.busName, uuid), at: now)
        let before = director.active
        for caller in [talk.busName, nameless.busName] {
            let other = isSame ? uuid : UUID()
            #expect(refusal(director.handle(join(caller, other), at: now)) == .channelLimitReached)
        }
        #expect(director.active == before)
    }

    @Test func `the configured channel is no exception while another is active`() {
        var director = started(programs: [talk])
        _ = director.handle(join(talk.busName, uuid), at: now)
        #expect(refusal(director.handle(join(user, configured.uuid), at: now)) == .channelLimitReached)
    }

    @Test func `a program takes over the channel that a user joined`() throws {
        var director = started(programs: [talk])
        let other = try invitation()
        _ = director.handle(join(user, nil, link: other), at: now)
        // Without the invitation the program can only bring media of its own.
        let actions = director.handle(join(talk.busName, other.channel.uuid, link: other), at: now)
        #expect(actions.first == .close(other.channel.uuid, .systemPolicy))
        #expect(director.owner == talk)
    }

    // MARK: What cannot be joined

    @Test func `an invitation to another channel is refused`() throws {
        var director = started(programs: [talk])
        #expect(refusal(director.handle(join(talk.busName, uuid, link: try invitation()), at: now)) == .unknown)
        #expect(director.active == configured)
    }

    @Test func `a user needs an invitation`() {
        var director = started()
        for media in [nil, true, false] {
            #expect(refusal(director.handle(join(user, uuid, application: media), at: now)) == .unknown)
        }
        #expect(refusal(director.handle(join(user, nil), at: now)) == .unknown)
    }

    @Test func `media of the daemon need an invitation`() {
        var director = started(programs: [talk])
        #expect(refusal(director.handle(join(talk.busName, uuid, application: false), at: now)) == .unknown)
    }

    @Test func `a program with media of its own may bring an invitation for pushes`() throws {
        var director = started(programs: [talk])
        let other = try invitation()
        _ = director.handle(join(talk.busName, nil, link: other, application: true), at: now)
        let joined = try #require(director.active)
        #expect(joined.hasApplicationMedia)
        #expect(director.link(of: joined) == other)
    }

    @Test func `pushes come by the configured relay when no other is named`() throws {
        var director = started(programs: [talk])
        _ = director.handle(join(talk.busName, uuid), at: now)
        #expect(try director.link(of: #require(director.active)) == link)
    }

    @Test func `no pushes come by the daemons own relay`() throws {
        var director = Director(configured: configured, relayCarriesPushes: false)
        _ = director.handle(.started(restoring: nil), at: now)
        _ = director.handle(.registered(talk), at: now)
        _ = director.handle(join(talk.busName, uuid), at: now)
        let joined = try #require(director.active)
        #expect(director.link(of: joined) == nil)
        // Its speech is another matter.
        #expect(director.link(of: configured) == link)
    }

    @Test func `a nameless descriptor is that of the invitation`() throws {
        var director = started(programs: [talk])
        let other = try invitation("Team")
        let join = ChannelJoin(
            caller: user, uuid: nil, descriptor: PTChannelDescriptor(name: "", image: nil), link: other)
        _ = director.handle(.join(join), at: now)
        #expect(director.active?.descriptor.name == "Team")
    }

    @Test func `a program in the background does not join`() {
        var director = started(programs: [talk])
        let actions = director.handle(join(talk.busName, uuid, isForeground: false), at: now)
        #expect(refusal(actions) == .appNotForeground)
        #expect(director.active == configured)
    }

    @Test func `a join that replaces the active channel leaves it unless it is refused`() throws {
        let (first, second) = (try invitation("First"), try invitation("Second"))
        var policy = JoinPolicy()
        policy.applications = [talk.name]
        let barred = BusProgram(busName: ":1.78", name: "com.example.Barred")
        var director = started(programs: [talk, barred], policy: policy)
        _ = director.handle(join(talk.busName, nil, link: first), at: now)
        let before = try #require(director.active)
        let background = join(
            talk.busName, nil, link: second, isForeground: false, replacing: first.channel.uuid)
        #expect(refusal(director.handle(background, at: now)) == .appNotForeground)
        let prohibited = join(barred.busName, nil, link: second, replacing: first.channel.uuid)
        #expect(refusal(director.handle(prohibited, at: now)) == .deviceManagementRestriction)
        // Another channel than the one that it would replace is active.
        let other = join(talk.busName, nil, link: second, replacing: second.channel.uuid)
        #expect(refusal(director.handle(other, at: now)) == .channelLimitReached)
        #expect(director.active == before)
        let actions = director.handle(join(talk.busName, nil, link: second, replacing: first.channel.uuid), at: now)
        let joined = try #require(director.active)
        #expect(joined.uuid == second.channel.uuid)
        #expect(
            actions == [
                .close(first.channel.uuid, .developerRequest), .open(joined, .developerRequest), .remember,
            ])
        // Somebody else replaces it.
        let third = director.handle(join(user, nil, link: first, replacing: second.channel.uuid), at: now)
        #expect(third.first == .close(second.channel.uuid, .userRequest))
    }

    // MARK: Policy

    @Test func `the administrators list holds for programs and their restoration`() throws {
        var policy = JoinPolicy()
        policy.applications = ["com.example.Other"]
        var director = started(programs: [talk], policy: policy)
        #expect(refusal(director.handle(join(talk.busName, uuid), at: now)) == .deviceManagementRestriction)
        var kept = try membership(invitation())
        kept.owner = ChannelOwner(name: talk.name, busName: nil)
        director = Director(configured: configured, policy: policy)
        let actions = director.handle(.started(restoring: kept), at: now)
        guard case .restorationFailed? = actions.first else {
            Issue.record("\(actions)")
            return
        }
        #expect(actions.dropFirst() == [.forget, .open(configured, .developerRequest)])
    }

    @Test func `a device that stays on its channel lets users return to it`() throws {
        var policy = JoinPolicy()
        policy.allowsJoining = false
        var director = started(programs: [talk], policy: policy)
        for event in [join(user, nil, link: try invitation()), join(talk.busName, configured.uuid)] {
            #expect(refusal(director.handle(event, at: now)) == .deviceManagementRestriction)
        }
        _ = director.handle(.leave(configured.uuid, caller: user), at: now)
        #expect(refusal(director.handle(join(user, configured.uuid), at: now)) == nil)
        #expect(director.active == configured)
    }

    @Test func `when the hours end the channel is left and the configured one returns with them`() {
        var director = started(programs: [talk])
        _ = director.handle(join(talk.busName, uuid), at: now)
        #expect(director.handle(.hoursChanged(isOpen: false), at: now) == [.close(uuid, .systemPolicy), .forget])
        #expect(refusal(director.handle(join(talk.busName, uuid), at: now)) == .screenTimeRestriction)
        #expect(refusal(director.handle(join(user, configured.uuid), at: now)) == .screenTimeRestriction)
        #expect(director.handle(.hoursChanged(isOpen: true), at: now) == [.open(configured, .developerRequest)])
        #expect(director.handle(.hoursChanged(isOpen: false), at: now) == [.close(configured.uuid, .systemPolicy)])
    }

    @Test func `outside of the hours nothing is joined at the start`() throws {
        var director = Director(configured: configured, isOpen: false)
        #expect(director.handle(.started(restoring: nil), at: now) == [])
        let actions = director.handle(.started(restoring: try membership(invitation())), at: now)
        guard case .restorationFailed? = actions.first else {
            Issue.record("\(actions)")
            return
        }
        #expect(actions.last == .forget)
    }

    // MARK: Restoration

    @Test func `a restored channel takes the configured ones place and its program is started`() throws {
        var kept = try membership(invitation())
        kept.owner = ChannelOwner(name: talk.name, busName: ":1.3")
        kept.mode = .listenOnly
        var director = Director(configured: configured)
        let actions = director.handle(.started(restoring: kept), at: now)
        // The unique name is one of another life.
        kept.owner?.busName = nil
        #expect(actions == [.open(kept, .channelRestoration), .startProgram(name: talk.name)])
        #expect(director.owner == nil)
        #expect(director.handle(.registered(talk), at: now) == [.hand(to: talk)])
        #expect(director.owner == talk)
        #expect(director.nextDeadline == nil)
        #expect(
            director.handle(.leave(kept.uuid, caller: talk.busName), at: now).last
                == .open(configured, .developerRequest))
    }

    @Test func `a users channel is restored too`() throws {
        let kept = try membership(invitation())
        var director = Director(configured: configured)
        #expect(director.handle(.started(restoring: kept), at: now) == [.open(kept, .channelRestoration)])
    }

    @Test func `a taken over configured channel is restored by its UUID`() {
        var kept = configured
        kept.isConfigured = false
        kept.link = nil
        kept.owner = ChannelOwner(name: talk.name, busName: nil)
        var director = Director(configured: configured)
        #expect(director.handle(.started(restoring: kept), at: now).first == .open(kept, .channelRestoration))
        #expect(director.link(of: kept) == link)
    }

    @Test func `a channel whose invitation is lost is not restored`() throws {
        var kept = try membership(invitation())
        kept.link = nil
        var director = Director(configured: configured)
        let actions = director.handle(.started(restoring: kept), at: now)
        #expect(actions.dropFirst() == [.forget, .open(configured, .developerRequest)])
    }

    // MARK: Life and death of programs

    @Test func `a programs death ends its transmissions not its membership`() {
        var director = started(programs: [talk])
        _ = director.handle(join(talk.busName, uuid), at: now)
        #expect(director.handle(.gone(busName: talk.busName), at: now) == [.release(busName: talk.busName), .orphan])
        #expect(director.active?.uuid == uuid)
        #expect(director.nextDeadline == nil)
        let again = BusProgram(busName: ":1.12", name: talk.name)
        #expect(director.handle(.registered(again), at: now) == [.hand(to: again)])
        #expect(director.owner == again)
    }

    @Test func `a program that registers a second time replaces its earlier registration`() {
        var director = started(programs: [talk])
        _ = director.handle(join(talk.busName, uuid), at: now)
        let again = BusProgram(busName: ":1.12", name: talk.name)
        #expect(
            director.handle(.registered(again), at: now) == [.release(busName: talk.busName), .hand(to: again)])
        #expect(director.programs == [again.busName: again])
        // The end of the replaced one is no news.
        #expect(director.handle(.gone(busName: talk.busName), at: now) == [])
        #expect(director.owner == again)
    }

    @Test func `a program of another name gets nothing`() {
        var director = started(programs: [talk])
        _ = director.handle(join(talk.busName, uuid), at: now)
        #expect(director.handle(.registered(nameless), at: now) == [])
        #expect(director.handle(.gone(busName: nameless.busName), at: now) == [.release(busName: nameless.busName)])
        #expect(director.owner == talk)
    }

    @Test func `a program may take a name after it joined`() {
        var director = started(programs: [nameless])
        _ = director.handle(join(nameless.busName, uuid), at: now)
        let named = BusProgram(busName: nameless.busName, name: "com.example.Late")
        #expect(director.handle(.registered(named), at: now) == [.hand(to: named), .remember])
        #expect(director.handle(.registered(named), at: now) == [.hand(to: named)])
        #expect(director.active?.owner?.name == named.name)
    }

    @Test func `a channel that nobody can serve is given up`() throws {
        var director = started(programs: [nameless])
        _ = director.handle(join(nameless.busName, uuid), at: now)
        _ = director.handle(.gone(busName: nameless.busName), at: now)
        #expect(director.active?.uuid == uuid)
        let deadline = try #require(director.nextDeadline)
        #expect(deadline == now + Director.orphanLimit)
        #expect(
            director.handle(.deadlineReached, at: deadline) == [
                .close(uuid, .systemPolicy), .forget, .open(configured, .developerRequest),
            ])
    }

    @Test(arguments: [("org.example.Talk", true), (":1.42", false), ("", false)])
    func `only a program with a well known name can be started again`(application: String, canStart: Bool) throws {
        let record = RestorationRecord(
            channelUUID: uuid, descriptor: PTChannelDescriptor(name: "Crew", image: nil), media: .application,
            application: application, token: PushToken([UInt8](repeating: 7, count: 32)))
        let joining = ChannelMembership(record).joining(.channelRestoration)
        #expect(joining.reason == .channelRestoration)
        #expect(joining.options.program == .absent)
        #expect(joining.options.canStartProgram == canStart)
    }

    @Test(arguments: [true, false]) func `a nameless program that outlived the daemon gets its channel back`(
        isInTime: Bool
    ) throws {
        var kept = try membership(invitation())
        kept.owner = ChannelOwner(name: "", busName: nil, formerBusName: nameless.busName)
        var director = Director(configured: configured)
        #expect(director.handle(.started(restoring: kept), at: now) == [.open(kept, .channelRestoration)])
        let deadline = try #require(director.nextDeadline)
        guard !isInTime else {
            #expect(director.handle(.registered(nameless), at: now) == [.hand(to: nameless), .remember])
            #expect(director.owner == nameless)
            return
        }
        // A unique name is that of somebody else after a while; the channel stays, and is nobody's.
        #expect(director.handle(.deadlineReached, at: deadline) == [])
        #expect(director.nextDeadline == nil)
        #expect(director.handle(.registered(nameless), at: now) == [])
        #expect(director.active?.uuid == kept.uuid)
    }

    @Test func `the next life of a nameless program joins its channel again`() throws {
        var director = started(programs: [nameless])
        _ = director.handle(join(nameless.busName, uuid), at: now)
        _ = director.handle(.gone(busName: nameless.busName), at: now)
        let next = BusProgram(busName: ":1.20", name: "")
        #expect(director.handle(.registered(next), at: now) == [])
        let actions = director.handle(join(next.busName, uuid), at: now)
        #expect(actions.first == .close(uuid, .systemPolicy))
        #expect(director.owner == next)
        #expect(director.nextDeadline == nil)
    }

    @Test func `a nameless programs channel with the daemons sound stays`() throws {
        var director = started(programs: [nameless])
        let other = try invitation()
        _ = director.handle(join(nameless.busName, nil, link: other), at: now)
        _ = director.handle(.gone(busName: nameless.busName), at: now)
        #expect(director.nextDeadline == nil)
        #expect(director.active?.uuid == other.channel.uuid)
    }

    @Test func `programs are bounded`() {
        var director = started()
        for index in 0..<Director.programsMax {
            #expect(director.handle(.registered(BusProgram(busName: ":2.\(index)", name: "")), at: now) == [])
        }
        #expect(refusal(director.handle(.registered(talk), at: now)) == .unknown)
        _ = director.handle(.gone(busName: ":2.0"), at: now)
        #expect(director.handle(.registered(talk), at: now) == [])
    }

    // MARK: Leaving

    @Test func `leaving another channel is not found`() {
        var director = started()
        #expect(refusal(director.handle(.leave(uuid, caller: user), at: now)) == .channelNotFound)
        #expect(director.active == configured)
    }

    @Test func `a channel that the channel manager left is only closed`() {
        var director = started(programs: [talk])
        _ = director.handle(join(talk.busName, uuid), at: now)
        #expect(
            director.handle(.left(uuid), at: now) == [
                .close(uuid, nil), .forget, .open(configured, .developerRequest),
            ])
        #expect(director.handle(.left(uuid), at: now) == [])
    }

    @Test func `a channel that does not open gives its place back`() {
        var director = started(programs: [talk])
        _ = director.handle(join(talk.busName, uuid), at: now)
        #expect(
            director.handle(.openFailed(uuid), at: now) == [
                .close(uuid, nil), .forget, .open(configured, .developerRequest),
            ])
        // The configured one is not tried in a loop.
        #expect(director.handle(.openFailed(configured.uuid), at: now) == [.close(configured.uuid, nil)])
    }
}
