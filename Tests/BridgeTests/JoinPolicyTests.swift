import Bridge
import PushToTalkCore
import Testing

@Suite struct JoinPolicyTests {
    private func hours(_ text: String) throws -> JoinPolicy.Hours { try #require(JoinPolicy.Hours(text)) }

    @Test func `without limits everybody may join at any time`() {
        let policy = JoinPolicy()
        #expect(policy.refusal(application: nil) == nil)
        #expect(policy.refusal(application: "") == nil)
        #expect(policy.isOpen(atMinute: 0))
        #expect(policy.minutesUntilChange(atMinute: 0) == nil)
    }

    @Test func `hours are read strictly`() throws {
        #expect(try hours("08:00-18:30") == hours("08:00-18:30"))
        #expect(JoinPolicy.Hours("00:00-24:00") != nil)
        for wrong in [
            "", "8:00-18:00", "08:00", "08:00-18:00-19:00", "08:60-09:00", "25:00-26:00", "24:00-02:00", "08:00-08:00",
            "22:00-00:00", "ab:cd-ef:gh", "08:00 - 18:00", "-1:00-02:00", "+1:00-02:00", "٠٨:00-18:00",
        ] {
            #expect(JoinPolicy.Hours(wrong) == nil, "\(wrong)")
        }
    }

    @Test func `hours end with their last minute`() throws {
        var policy = JoinPolicy()
        policy.hours = [try hours("08:00-12:00"), try hours("13:00-18:00")]
        for (minute, isOpen) in [(479, false), (480, true), (719, true), (720, false), (780, true), (1_080, false)] {
            #expect(policy.isOpen(atMinute: minute) == isOpen, "\(minute)")
        }
    }

    @Test func `hours may pass over midnight`() throws {
        var policy = JoinPolicy()
        policy.hours = [try hours("22:00-06:00")]
        for (minute, isOpen) in [(1_319, false), (1_320, true), (1_439, true), (0, true), (359, true), (360, false)] {
            #expect(policy.isOpen(atMinute: minute) == isOpen, "\(minute)")
        }
    }

    @Test func `the next change is never missed nor now`() throws {
        var policy = JoinPolicy()
        policy.hours = [try hours("22:00-06:00"), try hours("08:00-24:00")]
        for minute in 0..<1_440 {
            let wait = try #require(policy.minutesUntilChange(atMinute: minute))
            #expect((1...1_440).contains(wait))
            for between in minute..<(minute + wait) {
                #expect(policy.isOpen(atMinute: between % 1_440) == policy.isOpen(atMinute: minute))
            }
        }
    }

    @Test func `the administrator keeps a device on its channel`() {
        var policy = JoinPolicy()
        policy.allowsJoining = false
        #expect(policy.refusal(application: nil)?.code == .deviceManagementRestriction)
        #expect(policy.refusal(application: "com.example.Talk")?.code == .deviceManagementRestriction)
    }

    @Test func `programs are allowed by name or pattern`() {
        var policy = JoinPolicy()
        policy.applications = ["com.example.*", "org.talk"]
        for name in ["com.example.Talk", "com.example.", "org.talk"] {
            #expect(policy.refusal(application: name) == nil, "\(name)")
        }
        for name in ["com.examples.Talk", "org.talk.Other", "", "xcom.example.Talk"] {
            #expect(policy.refusal(application: name)?.code == .deviceManagementRestriction, "\(name)")
        }
        // Users are no programs.
        #expect(policy.refusal(application: nil) == nil)
    }
}
